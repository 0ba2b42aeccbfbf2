// SPDX-License-Identifier: Apache-2.0
#include "kernels/elementwise/elementwise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

#include "kernels/elementwise/reference.h"
#include "kernels/testing.h"

namespace thimble::kernels {
namespace {

using testing::FillRandom;
using testing::ForEachTarget;
using testing::GuardedBuffer;
using testing::SumErrorBound;
using testing::TestContext;

// Lengths 0 … 2·lanes+1 of the widest target, and some that split over blocks.
std::vector<int64_t> Lengths() {
  std::vector<int64_t> lengths;
  for (int64_t n = 0; n <= 33; ++n) lengths.push_back(n);
  lengths.insert(lengths.end(), {4095, 4096, 4097, 20001});
  return lengths;
}

// Runs body(n, misalign, threads) for every target, length and misalignment.
template <typename F>
void ForEachCase(const F& body) {
  ForEachTarget([&] {
    for (int64_t n : Lengths()) {
      for (size_t misalign : {0, 1, 3}) {
        SCOPED_TRACE(::testing::Message() << "n=" << n << " at " << misalign);
        body(n, misalign, 1 + static_cast<int>(n % 3));
      }
    }
  });
}

TEST(Elementwise, AddMatchesReferenceAlsoInPlace) {
  ForEachCase([](int64_t n, size_t misalign, int threads) {
    const auto size = static_cast<size_t>(n);
    GuardedBuffer<float> a(size, misalign), b(size), y(size, misalign);
    std::vector<float> want(size);
    FillRandom(a.span(), 1);
    FillRandom(b.span(), 2);
    reference::Add(n, a.data(), b.data(), want.data());
    TestContext context(threads);
    Add(n, F32(a.data()), F32(b.data()), F32(y.data()), *context);
    Add(n, F32(a.data()), F32(b.data()), F32(a.data()), *context);
    for (size_t i = 0; i < size; ++i) {
      ASSERT_EQ(y[i], want[i]);
      ASSERT_EQ(a[i], want[i]);
    }
    y.CheckGuards("y");
    a.CheckGuards("a");
  });
}

TEST(Elementwise, ReluAndItsGradientsMatchReference) {
  ForEachCase([](int64_t n, size_t misalign, int threads) {
    const auto size = static_cast<size_t>(n);
    const size_t bytes = (size + 7) / 8;
    GuardedBuffer<float> x(size, misalign), y(size), y2(size, misalign);
    GuardedBuffer<float> grad(size, misalign), gx(size), gx2(size);
    GuardedBuffer<uint8_t> mask(bytes, misalign);
    FillRandom(x.span(), 3);
    FillRandom(grad.span(), 4);
    if (n > 2) x[2] = 0.0f;  // the gradient at 0 is 0
    std::vector<float> want(size), want_grad(size);
    std::vector<uint8_t> want_mask(bytes);
    reference::Relu(n, x.data(), want.data());
    reference::ReluMask(n, x.data(), want_mask.data());
    reference::ReluGradFromOutput(n, want.data(), grad.data(),
                                  want_grad.data());
    TestContext context(threads);
    Relu(n, F32(x.data()), F32(y.data()), *context);
    ReluWithMask(n, F32(x.data()), F32(y2.data()), mask.data(), *context);
    ReluGradFromOutput(n, F32(y.data()), F32(grad.data()), F32(gx.data()),
                       *context);
    ReluGradFromMask(n, mask.data(), F32(grad.data()), F32(gx2.data()),
                     *context);
    ReluGradFromOutput(n, F32(y.data()), F32(grad.data()), F32(grad.data()),
                       *context);
    ReluWithMask(n, F32(x.data()), F32(x.data()), mask.data(), *context);
    for (size_t i = 0; i < size; ++i) {
      ASSERT_EQ(y[i], want[i]);
      ASSERT_EQ(y2[i], want[i]);
      ASSERT_EQ(x[i], want[i]);
      ASSERT_EQ(gx[i], want_grad[i]);
      ASSERT_EQ(gx2[i], want_grad[i]);
      ASSERT_EQ(grad[i], want_grad[i]);
    }
    for (size_t i = 0; i < bytes; ++i) ASSERT_EQ(mask[i], want_mask[i]);
    for (const auto* buffer : {&x, &y, &y2, &grad, &gx, &gx2}) {
      buffer->CheckGuards("relu");
    }
    mask.CheckGuards("mask");
  });
}

TEST(Elementwise, ReluLetsNanThrough) {
  ForEachTarget([] {
    GuardedBuffer<float> x(20), y(20);
    FillRandom(x.span(), 5);
    x[7] = std::numeric_limits<float>::quiet_NaN();
    TestContext context(1);
    Relu(20, F32(x.data()), F32(y.data()), *context);
    EXPECT_TRUE(std::isnan(y[7]));
  });
}

// Channels and pixels around vector lengths, one image to several.
const std::tuple<int64_t, int64_t, int64_t> kImages[] = {
    {1, 1, 1},  {3, 2, 49},  {2, 5, 16},  {4, 3, 17}, {2, 7, 784},
    {9, 10, 1}, {33, 65, 1}, {5, 130, 1}, {1, 1, 33}, {7, 2, 35}};

// The mask in the words of its contract.
TEST(Elementwise, DropoutMatchesReferenceAlsoInPlace) {
  ForEachCase([](int64_t n, size_t misalign, int threads) {
    const int64_t images = n > 100 ? 2 : 3;
    const auto size = static_cast<size_t>(images * n);
    GuardedBuffer<float> x(size, misalign), y(size, 1);
    FillRandom(x.span(), 13);
    const DropoutMask mask{.seed = 0x123456789ABCDEF0u,
                           .step = 0xFEDCBA9876u,
                           .stream = 7,
                           .first = 5,
                           .rate = 0.3f};
    std::vector<float> want(size);
    reference::Dropout(images, n, mask, x.data(), want.data());
    TestContext context(threads);
    Dropout(images, n, mask, F32(x.data()), F32(y.data()), *context);
    Dropout(images, n, mask, F32(x.data()), F32(x.data()), *context);
    for (size_t i = 0; i < size; ++i) {
      ASSERT_EQ(y[i], want[i]);
      ASSERT_EQ(x[i], want[i]);
    }
    y.CheckGuards("y");
    x.CheckGuards("x");
  });
}

TEST(Elementwise, DropoutKeepsTheExpectation) {
  const int64_t n = 100'000;
  constexpr double kEpsilon = std::numeric_limits<float>::epsilon();
  const std::vector<float> ones(static_cast<size_t>(n), 1.0f);
  std::vector<float> y(ones.size());
  const TestContext context(1);
  for (const float rate : {0.0f, 0.1f, 0.5f, 0.9f}) {
    const DropoutMask mask{.seed = 1, .step = 1, .rate = rate};
    Dropout(1, n, mask, F32(ones.data()), F32(y.data()), *context);
    double sum = 0;
    for (const float v : y) {
      ASSERT_TRUE(v == 0.0f || v == mask.scale());
      sum += static_cast<double>(v);
    }
    // Five deviations of the mean of n draws.
    const double p = rate;
    EXPECT_NEAR(sum / n, 1.0, 5 * std::sqrt(p / (1 - p) / n) + kEpsilon)
        << rate;
  }
}

// Each part of the address makes other masks; an image's does not depend on how
// the step is divided.
TEST(Elementwise, DropoutMasksAreOfTheirAddress) {
  const int64_t images = 4;
  const int64_t n = 100;
  const std::vector<float> ones(static_cast<size_t>(images * n), 1.0f);
  const TestContext context(2);
  const auto draw = [&](const DropoutMask& mask, int64_t count) {
    std::vector<float> y(static_cast<size_t>(count * n));
    Dropout(count, n, mask, F32(ones.data()), F32(y.data()), *context);
    return y;
  };
  const DropoutMask mask{.seed = 3, .step = 4, .stream = 5, .rate = 0.5f};
  const std::vector<float> whole = draw(mask, images);
  EXPECT_EQ(draw(mask, images), whole);
  for (int64_t first = 0; first < images; ++first) {
    DropoutMask part = mask;
    part.first = first;
    const std::vector<float> y = draw(part, images - first);
    EXPECT_TRUE(std::equal(y.begin(), y.end(), whole.begin() + first * n));
    if (first == 0) continue;
    EXPECT_NE(draw(part, 1), draw(mask, 1));
  }
  for (DropoutMask other :
       {DropoutMask{.seed = 2, .step = 4, .stream = 5, .rate = 0.5f},
        DropoutMask{.seed = 3 | uint64_t{1} << 32,
        .step = 4,
        .stream = 5,
        .rate = 0.5f},
        DropoutMask{.seed = 3, .step = 3, .stream = 5, .rate = 0.5f},
        DropoutMask{.seed = 3,
        .step = 4 | uint64_t{1} << 32,
        .stream = 5,
        .rate = 0.5f},
        DropoutMask{.seed = 3, .step = 4, .stream = 4, .rate = 0.5f}}) {
    EXPECT_NE(draw(other, images), whole);
  }
}

TEST(Elementwise, BiasAndNormalizeMatchReference) {
  ForEachTarget([] {
    for (const auto& [images, channels, pixels] : kImages) {
      SCOPED_TRACE(::testing::Message()
                   << images << "x" << channels << "x" << pixels);
      const auto size = static_cast<size_t>(images * channels * pixels);
      const auto c = static_cast<size_t>(channels);
      GuardedBuffer<float> x(size, 1), y(size, 3), bias(c, 1), scale(c);
      GuardedBuffer<uint8_t> bytes(size, 5);
      FillRandom(x.span(), 6);
      FillRandom(bias.span(), 7);
      FillRandom(scale.span(), 8);
      for (size_t i = 0; i < size; ++i) {
        bytes[i] = static_cast<uint8_t>(i * 37 % 256);
      }
      std::vector<float> want(size), want_normal(size);
      reference::BiasAdd(images, channels, pixels, x.data(), bias.data(),
                         want.data());
      TestContext context(2);
      BiasAdd(images, channels, pixels, F32(x.data()), F32(bias.data()),
              F32(y.data()), *context);
      for (size_t i = 0; i < size; ++i) ASSERT_EQ(y[i], want[i]);
      reference::NormalizeU8(images, channels, pixels, bytes.data(),
                             scale.data(), bias.data(), want_normal.data());
      NormalizeU8(images, channels, pixels, bytes.data(), scale.data(),
                  bias.data(), F32(y.data()), *context);
      for (size_t i = 0; i < size; ++i) {
        ASSERT_NEAR(y[i], want_normal[i], SumErrorBound(1, 256.0));
      }
      y.CheckGuards("y");
    }
  });
}

TEST(Elementwise, SlicesAreThoseOfNormalizedImages) {
  ForEachTarget([] {
    for (const auto& [images, channels, pixels] : kImages) {
      const int64_t all = channels * pixels;
      GuardedBuffer<uint8_t> bytes(static_cast<size_t>(images * all), 3);
      GuardedBuffer<float> scale(static_cast<size_t>(channels));
      GuardedBuffer<float> shift(scale.size(), 1), whole(bytes.size());
      FillRandom(scale.span(), 11);
      FillRandom(shift.span(), 12);
      for (size_t i = 0; i < bytes.size(); ++i) {
        bytes[i] = static_cast<uint8_t>(i * 41 % 256);
      }
      const TestContext context(2);
      NormalizeU8(images, channels, pixels, bytes.data(), scale.data(),
                  shift.data(), F32(whole.data()), *context);
      // Whole images, one element, and parts that cross channels.
      for (const auto& [begin, end] : {std::pair{int64_t{0}, all},
                                       {all / 2, all / 2 + 1},
                                       {all / 3, all - all / 3},
                                       {all - 1, all}}) {
        SCOPED_TRACE(::testing::Message()
                     << images << "x" << channels << "x" << pixels << " ["
                     << begin << ", " << end << ")");
        const int64_t count = end - begin;
        GuardedBuffer<float> y(static_cast<size_t>(images * count), 1);
        std::vector<float> want(y.size());
        NormalizeU8Slice(images, channels, pixels, begin, count, bytes.data(),
                         scale.data(), shift.data(), F32(y.data()), *context);
        reference::NormalizeU8Slice(images, channels, pixels, begin, count,
                                    bytes.data(), scale.data(), shift.data(),
                                    want.data());
        y.CheckGuards("y");
        for (int64_t i = 0; i < images; ++i) {
          for (int64_t k = 0; k < count; ++k) {
            const auto at = static_cast<size_t>(i * count + k);
            ASSERT_EQ(y[at], whole[static_cast<size_t>(i * all + begin + k)]);
            ASSERT_NEAR(y[at], want[at], SumErrorBound(1, 256.0));
          }
        }
      }
    }
  });
}

// The order that the contract promises, in f32: the sums are the same bits.
TEST(Elementwise, BiasGradOfRowsAddsInIndexOrder) {
  ForEachTarget([] {
    for (int64_t channels = 1; channels <= 130; ++channels) {
      constexpr int64_t kRows = 9;
      const auto n = static_cast<size_t>(channels);
      GuardedBuffer<float> grad(kRows * n, 1), got(n, 3);
      FillRandom(grad.span(), 9);
      std::vector<float> want(n);
      reference::BiasGrad(kRows, channels, 1, grad.data(), want.data());
      TestContext context(1);
      BiasGrad(kRows, channels, 1, F32(grad.data()), ConstTensor::None(),
               F32(got.data()), *context);
      ASSERT_EQ(std::vector<float>(got.data(), got.data() + n), want);
    }
  });
}

TEST(Elementwise, BiasGradMatchesReferenceForAnyThreadCount) {
  ForEachTarget([] {
    for (const auto& [images, channels, pixels] : kImages) {
      const auto size = static_cast<size_t>(images * channels * pixels);
      const auto c = static_cast<size_t>(channels);
      GuardedBuffer<float> grad(size, 1);
      FillRandom(grad.span(), 9);
      const std::vector<double> wide(grad.data(), grad.data() + size);
      std::vector<double> want(c);
      reference::BiasGrad(images, channels, pixels, wide.data(), want.data());
      std::vector<float> first;
      for (int threads : {1, 2, 3}) {
        TestContext context(threads);
        GuardedBuffer<float> got(c, 1);
        BiasGrad(images, channels, pixels, F32(grad.data()),
                 ConstTensor::None(), F32(got.data()), *context);
        got.CheckGuards("grad_bias");
        const auto terms = static_cast<double>(images * pixels);
        for (size_t i = 0; i < c; ++i) {
          ASSERT_NEAR(got[i], want[i], SumErrorBound(images * pixels, terms));
        }
        const std::vector<float> bits(got.data(), got.data() + c);
        if (threads == 1) first = bits;
        ASSERT_EQ(bits, first);
        GuardedBuffer<float> sum(c, 1), addend(c);
        FillRandom(addend.span(), 10);
        BiasGrad(images, channels, pixels, F32(grad.data()), F32(addend.data()),
                 F32(sum.data()), *context);
        for (size_t i = 0; i < c; ++i) ASSERT_EQ(sum[i], addend[i] + bits[i]);
        BiasGrad(images, channels, pixels, F32(grad.data()), F32(addend.data()),
                 F32(addend.data()), *context);
        for (size_t i = 0; i < c; ++i) ASSERT_EQ(sum[i], addend[i]);
        sum.CheckGuards("sum");
        addend.CheckGuards("addend");
      }
    }
  });
}

}  // namespace
}  // namespace thimble::kernels
