// SPDX-License-Identifier: Apache-2.0
#include "kernels/pool/pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <complex>
#include <limits>
#include <tuple>
#include <vector>

#include "kernels/guard_page.h"
#include "kernels/pool/reference.h"
#include "kernels/testing.h"

namespace thimble::kernels {
namespace {

using testing::FillRandom;
using testing::ForEachTarget;
using testing::GuardedBuffer;
using testing::GuardPageBuffer;
using testing::SumErrorBound;
using testing::TestContext;
using testing::TestValue;

using Doubles = std::vector<double>;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Doubles Wide(const GuardedBuffer<float>& values) {
  return {values.data(), values.data() + values.size()};
}

std::vector<uint32_t> Bits(const GuardedBuffer<float>& values) {
  std::vector<uint32_t> bits;
  for (size_t i = 0; i < values.size(); ++i) {
    bits.push_back(std::bit_cast<uint32_t>(values[i]));
  }
  return bits;
}

size_t Outputs(const PoolShape& shape, int64_t images) {
  return static_cast<size_t>(reference::OutputSize(shape, images));
}
size_t Inputs(const PoolShape& shape, int64_t images) {
  return static_cast<size_t>(reference::InputSize(shape, images));
}

// Pooling takes no scratch, so all cases share the pools.
const KernelContext& ContextOf(int threads) {
  static const TestContext contexts[] = {TestContext(1), TestContext(2),
                                         TestContext(3)};
  return *contexts[threads - 1];
}

// Kernel, stride, padding: fast paths, overlap, gaps between windows, borders.
const std::tuple<int64_t, int64_t, int64_t> kWindows[] = {
    {2, 2, 0}, {2, 2, 1}, {3, 2, 1}, {3, 2, 0}, {3, 1, 1}, {2, 1, 0}, {1, 2, 0},
    {2, 3, 0}, {3, 3, 1}, {5, 3, 2}, {4, 1, 2}, {5, 2, 2}, {16, 4, 8}};

// Runs body(shape, images, misalign) for every target and window, on planes of
// every width up to two of the widest vectors of outputs and one more.
template <typename F>
void ForEachShape(const F& body) {
  ForEachTarget([&] {
    for (const auto& [kernel, stride, padding] : kWindows) {
      for (int64_t width = 1; width <= 70; width += width < 36 ? 1 : 7) {
        const int64_t height = 1 + (width * 5) % 9;
        if (std::min(width, height) + 2 * padding < kernel) continue;
        SCOPED_TRACE(::testing::Message()
                     << height << "x" << width << " kernel " << kernel
                     << " stride " << stride << " padding " << padding);
        const auto misalign = static_cast<size_t>(width % 4);
        body(PoolShape{.channels = 1 + width % 3,
                       .height = height,
                       .width = width,
                       .kernel = kernel,
                       .stride = stride,
                       .padding = padding},
             1 + width % 2, misalign);
      }
    }
  });
}

// Values of which many are equal, some −inf and some NaN.
void FillWithTies(GuardedBuffer<float>& x) {
  for (size_t i = 0; i < x.size(); ++i) {
    const float v = TestValue(1, i);
    x[i] = std::floor(v * 3.0f);
    if (v > 0.95f) x[i] = kNan;
    if (v < -0.6f) x[i] = -kInf;
  }
}

TEST(Pool, MaxMatchesReferenceWithTiesInfinitiesAndNan) {
  ForEachShape([](const PoolShape& shape, int64_t images, size_t misalign) {
    const size_t outputs = Outputs(shape, images);
    GuardedBuffer<float> x(Inputs(shape, images), misalign);
    for (bool ties : {false, true}) {
      FillRandom(x.span(), 1);
      if (ties) FillWithTies(x);
      std::vector<float> want(outputs);
      std::vector<uint8_t> want_winner(outputs);
      reference::MaxPool(shape, images, x.data(), want.data(),
                         want_winner.data());
      for (int threads : {1, 2, 3}) {
        GuardedBuffer<float> y(outputs, misalign), y2(outputs);
        GuardedBuffer<uint8_t> winner(outputs, misalign);
        const KernelContext& context = ContextOf(threads);
        MaxPool(shape, images, F32(x.data()), F32(y.data()), winner.data(),
                context);
        MaxPool(shape, images, F32(x.data()), F32(y2.data()), nullptr, context);
        for (size_t i = 0; i < outputs; ++i) {
          ASSERT_EQ(std::isnan(y[i]), std::isnan(want[i])) << i;
          if (!std::isnan(want[i])) {
            ASSERT_EQ(y[i], want[i]) << i;
          }
          ASSERT_EQ(winner[i], want_winner[i]) << i;
        }
        ASSERT_EQ(Bits(y), Bits(y2));
        y.CheckGuards("y");
        y2.CheckGuards("y2");
        winner.CheckGuards("winner");
      }
    }
  });
}

// Runs `run` for 1, 2 and 3 threads into an output that starts as NaNs, checks
// that its bits never differ, and hands back what it made.
template <typename F>
std::vector<float> RunOverThreads(size_t size, size_t misalign, const F& run) {
  std::vector<uint32_t> first;
  std::vector<float> result;
  for (int threads : {1, 2, 3}) {
    GuardedBuffer<float> out(size, misalign);
    for (size_t i = 0; i < size; ++i) out[i] = kNan;
    run(out.data(), ContextOf(threads));
    out.CheckGuards("output");
    if (threads == 1) first = Bits(out);
    EXPECT_EQ(Bits(out), first);
    result.assign(out.data(), out.data() + size);
  }
  return result;
}

TEST(Pool, MaxGradMatchesReferenceForAnyThreadCount) {
  ForEachShape([](const PoolShape& shape, int64_t images, size_t misalign) {
    GuardedBuffer<float> x(Inputs(shape, images));
    GuardedBuffer<float> y(Outputs(shape, images));
    GuardedBuffer<float> grad_y(Outputs(shape, images), misalign);
    GuardedBuffer<uint8_t> winner(Outputs(shape, images), misalign);
    FillRandom(x.span(), 1);
    FillRandom(grad_y.span(), 2);
    reference::MaxPool(shape, images, x.data(), y.data(), winner.data());
    Doubles want(x.size()), size(x.size()), magnitude = Wide(grad_y);
    reference::MaxPoolGrad(shape, images, winner.data(), Wide(grad_y).data(),
                           want.data());
    for (double& v : magnitude) v = std::fabs(v);
    reference::MaxPoolGrad(shape, images, winner.data(), magnitude.data(),
                           size.data());
    const auto got = RunOverThreads(
        x.size(), misalign, [&](float* out, const KernelContext& context) {
          MaxPoolGrad(shape, images, winner.data(), F32(grad_y.data()),
                      F32(out), context);
        });
    // An input lies under at most kernel² windows.
    const int64_t terms = shape.kernel * shape.kernel;
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_NEAR(got[i], want[i], SumErrorBound(terms, size[i])) << i;
    }
  });
}

TEST(Pool, AverageAndItsGradMatchReferenceForAnyThreadCount) {
  ForEachShape([](const PoolShape& shape, int64_t images, size_t misalign) {
    GuardedBuffer<float> x(Inputs(shape, images), misalign);
    GuardedBuffer<float> grad_y(Outputs(shape, images), misalign);
    FillRandom(x.span(), 1);
    FillRandom(grad_y.span(), 2);
    Doubles want_y(grad_y.size()), want_grad(x.size());
    Doubles size_y(grad_y.size()), size_grad(x.size());
    Doubles abs_x = Wide(x), abs_grad = Wide(grad_y);
    for (double& v : abs_x) v = std::fabs(v);
    for (double& v : abs_grad) v = std::fabs(v);
    reference::AveragePool(shape, images, Wide(x).data(), want_y.data());
    reference::AveragePool(shape, images, abs_x.data(), size_y.data());
    reference::AveragePoolGrad(shape, images, Wide(grad_y).data(),
                               want_grad.data());
    reference::AveragePoolGrad(shape, images, abs_grad.data(),
                               size_grad.data());
    const auto y = RunOverThreads(
        grad_y.size(), misalign, [&](float* out, const KernelContext& context) {
          AveragePool(shape, images, F32(x.data()), F32(out), context);
        });
    const auto grad = RunOverThreads(
        x.size(), misalign, [&](float* out, const KernelContext& context) {
          AveragePoolGrad(shape, images, F32(grad_y.data()), F32(out), context);
        });
    // The reciprocal of kernel² and its product round once each as well.
    const int64_t terms = shape.kernel * shape.kernel;
    for (size_t i = 0; i < y.size(); ++i) {
      ASSERT_NEAR(y[i], want_y[i], SumErrorBound(terms, size_y[i])) << i;
    }
    for (size_t i = 0; i < grad.size(); ++i) {
      ASSERT_NEAR(grad[i], want_grad[i], SumErrorBound(terms, size_grad[i]))
          << i;
    }
  });
}

TEST(Pool, GlobalAverageAndItsGradMatchReferenceForAnyThreadCount) {
  std::vector<int64_t> pixel_counts;
  for (int64_t n = 1; n <= 33; ++n) pixel_counts.push_back(n);
  pixel_counts.insert(pixel_counts.end(), {49, 64, 196, 1023, 1024, 5000});
  ForEachTarget([&] {
    for (int64_t pixels : pixel_counts) {
      SCOPED_TRACE(pixels);
      const int64_t images = 2;
      const int64_t channels = 5;
      const auto planes = static_cast<size_t>(images * channels);
      const auto misalign = static_cast<size_t>(pixels % 4);
      GuardedBuffer<float> x(planes * static_cast<size_t>(pixels), misalign);
      GuardedBuffer<float> grad_y(planes, misalign);
      FillRandom(x.span(), 1);
      FillRandom(grad_y.span(), 2);
      Doubles want(planes), size(planes), magnitude = Wide(x);
      for (double& v : magnitude) v = std::fabs(v);
      reference::GlobalAveragePool(images, channels, pixels, Wide(x).data(),
                                   want.data());
      reference::GlobalAveragePool(images, channels, pixels, magnitude.data(),
                                   size.data());
      const auto y = RunOverThreads(
          planes, misalign, [&](float* out, const KernelContext& context) {
            GlobalAveragePool(images, channels, pixels, F32(x.data()), F32(out),
                              context);
          });
      // A chain, what is left over after whole rounds of chains, the fold.
      const int64_t terms = std::min(pixels, kPoolPiece / kPoolChains) + 10;
      for (size_t i = 0; i < planes; ++i) {
        ASSERT_NEAR(y[i], want[i], SumErrorBound(terms, size[i])) << i;
      }
      std::vector<float> want_grad(x.size());
      reference::GlobalAveragePoolGrad(images, channels, pixels, grad_y.data(),
                                       want_grad.data());
      const auto grad = RunOverThreads(
          x.size(), misalign, [&](float* out, const KernelContext& context) {
            GlobalAveragePoolGrad(images, channels, pixels, F32(grad_y.data()),
                                  F32(out), context);
          });
      ASSERT_EQ(grad, want_grad);
    }
  });
}

TEST(Pool, StaysInsideItsTensors) {
  ForEachShape([](const PoolShape& shape, int64_t images, size_t) {
    GuardPageBuffer<float> x(Inputs(shape, images)), y(Outputs(shape, images));
    GuardPageBuffer<uint8_t> winner(Outputs(shape, images));
    const KernelContext& context = ContextOf(1);
    MaxPool(shape, images, F32(x.data()), F32(y.data()), winner.data(),
            context);
    MaxPoolGrad(shape, images, winner.data(), F32(y.data()), F32(x.data()),
                context);
    AveragePool(shape, images, F32(x.data()), F32(y.data()), context);
    AveragePoolGrad(shape, images, F32(y.data()), F32(x.data()), context);
    const int64_t planes = images * shape.channels;
    const int64_t pixels = shape.height * shape.width;
    GuardPageBuffer<float> means(static_cast<size_t>(planes));
    GlobalAveragePool(images, shape.channels, pixels, F32(x.data()),
                      F32(means.data()), context);
    GlobalAveragePoolGrad(images, shape.channels, pixels, F32(means.data()),
                          F32(x.data()), context);
  });
}

const PoolShape kOverlapping{.channels = 2,
                             .height = 5,
                             .width = 6,
                             .kernel = 3,
                             .stride = 2,
                             .padding = 1};

TEST(Pool, ReferenceAverageGradIsTheComplexStepOfTheReferenceForward) {
  using Complex = std::complex<double>;
  GuardedBuffer<float> x(Inputs(kOverlapping, 1)), w(Outputs(kOverlapping, 1));
  FillRandom(x.span(), 1);
  FillRandom(w.span(), 2);
  Doubles grad(x.size());
  reference::AveragePoolGrad(kOverlapping, 1, Wide(w).data(), grad.data());
  std::vector<Complex> cx(x.data(), x.data() + x.size()), y(w.size());
  const double h = 1e-30;
  for (size_t i = 0; i < cx.size(); ++i) {
    cx[i] += Complex(0.0, h);
    reference::AveragePool(kOverlapping, 1, cx.data(), y.data());
    cx[i] = x[i];
    double sum = 0.0;
    for (size_t k = 0; k < y.size(); ++k) sum += w[k] * y[k].imag() / h;
    // At most four windows over an input, of weight below 1.
    EXPECT_NEAR(grad[i], sum, 16 * std::numeric_limits<double>::epsilon());
  }
}

TEST(Pool, ReferenceMaxGradIsTheDifferenceQuotientAwayFromTies) {
  GuardedBuffer<float> x(Inputs(kOverlapping, 1)), w(Outputs(kOverlapping, 1));
  FillRandom(x.span(), 1);
  FillRandom(w.span(), 2);
  Doubles wide = Wide(x), y(w.size()), grad(x.size());
  std::vector<uint8_t> winner(w.size());
  reference::MaxPool(kOverlapping, 1, wide.data(), y.data(), winner.data());
  reference::MaxPoolGrad(kOverlapping, 1, winner.data(), Wide(w).data(),
                         grad.data());
  // Test values differ by at least their grid of 2⁻²³, so a step of an eighth
  // of that changes no winner, and the forward is linear over it.
  const double h = std::ldexp(1.0, -26);
  const auto forward = [&](size_t i, double step) {
    wide[i] += step;
    reference::MaxPool(kOverlapping, 1, wide.data(), y.data(), winner.data());
    wide[i] = x[i];
    double sum = 0.0;
    for (size_t k = 0; k < y.size(); ++k) sum += w[k] * y[k];
    return sum;
  };
  const auto terms = static_cast<double>(2 * w.size());
  for (size_t i = 0; i < wide.size(); ++i) {
    const double quotient = (forward(i, h) - forward(i, -h)) / (2 * h);
    EXPECT_NEAR(grad[i], quotient,
                terms * terms * std::numeric_limits<double>::epsilon() / h);
  }
}

}  // namespace
}  // namespace thimble::kernels
