// SPDX-License-Identifier: Apache-2.0
//
// Gradients of weights in pieces: what a sink stores, and that kernels hand
// over the sums that they would store, each once, in whole blocks.
#include "kernels/grad_sink/grad_sink.h"

#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/rng.h"
#include "kernels/block_tensor.h"
#include "kernels/conv/conv.h"
#include "kernels/dot/test_form.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/matmul/matmul.h"
#include "kernels/stored_tensor.h"
#include "kernels/testing.h"

namespace thimble::kernels {
namespace {

using testing::BlockTensor;
using testing::ForEachDotForm;
using testing::ForEachFloatType;
using testing::ForEachTarget;
using testing::StoredTensor;
using testing::TestContext;
using testing::TestValue;

constexpr RandomAddress kSinkRandom = {5, 9, 77};
constexpr int64_t kBlock = ConstTensor::kBlock;

std::vector<float> SumsOf(size_t n, uint64_t seed) {
  std::vector<float> sums(n);
  for (size_t i = 0; i < n; ++i) sums[i] = TestValue(seed, i);
  return sums;
}

TEST(GradRegions, CoverEachElementOnceInWholeBlocks) {
  struct Case {
    int64_t outputs, row, unit;
  };
  const Case cases[] = {{16, 27, 9},    {16, 144, 9},   {32, 144, 9},
                        {32, 288, 9},   {64, 288, 9},   {128, 1152, 9},
                        {640, 5760, 9}, {10, 128, 1},   {10, 784, 1},
                        {100, 785, 1},  {512, 1152, 1}, {40, 75, 25},
                        {1, 1, 1},      {7, 64, 64},    {160, 1440, 9}};
  for (const Case& c : cases) {
    SCOPED_TRACE(::testing::Message() << c.outputs << " x " << c.row);
    const GradRegions regions(c.outputs, c.row, c.unit);
    const int64_t all = c.outputs * c.row;
    std::vector<int> met(static_cast<size_t>(all));
    struct Count final : PieceSink {
      Count(int64_t total, std::vector<int>& counts)
          : all(total), met(counts) {}
      void Take(int64_t first, int64_t n, float*) const override {
        EXPECT_EQ(first % kBlock, 0);
        EXPECT_TRUE(n % kBlock == 0 || first + n == all);
        for (int64_t i = first; i < first + n; ++i) {
          ++met[static_cast<size_t>(i)];
        }
      }
      int64_t all;
      std::vector<int>& met;
    };
    const Count count(all, met);
    for (int64_t i = 0; i < regions.count(); ++i) {
      const GradRegion r = regions.At(i);
      EXPECT_LE(r.outputs * r.columns, regions.Floats());
      EXPECT_LE(r.outputs, regions.outputs());
      EXPECT_EQ(r.first_column % c.unit, 0);
      regions.Hand(r, nullptr, count);
    }
    EXPECT_EQ(met, std::vector<int>(static_cast<size_t>(all), 1));
  }
}

TEST(StoredSink, StoresAndAddsEveryFloatType) {
  ForEachFloatType([](DType dtype) {
    for (const size_t n : {size_t{1}, size_t{64}, size_t{700}, size_t{1601}}) {
      for (const bool adds : {false, true}) {
        StoredTensor to(dtype, n, 3);
        std::vector<double> want(n);
        const std::vector<float> sums = SumsOf(n, 4);
        for (size_t i = 0; i < n; ++i) {
          const auto before = static_cast<float>(to.Get(i));
          want[i] = to.Rounded(adds ? before + sums[i] : sums[i]);
        }
        const StoredSink sink(
            to.tensor(), adds ? ConstTensor(to.tensor()) : ConstTensor::None(),
            kSinkRandom);
        // In two pieces, the later one first.
        const size_t half = n / 128 * 64;
        std::vector<float> part(sums.begin() + static_cast<int64_t>(half),
                                sums.end());
        sink.Take(static_cast<int64_t>(half), static_cast<int64_t>(n - half),
                  part.data());
        part.assign(sums.begin(), sums.begin() + static_cast<int64_t>(half));
        sink.Take(0, static_cast<int64_t>(half), part.data());
        EXPECT_EQ(to.Wide(), want) << "n=" << n << " adds=" << adds;
      }
    }
  });
}

TEST(StoredSink, StoresAndAddsBlocksRoundedByChance) {
  ForEachTarget([] {
    for (const size_t n : {size_t{1}, size_t{64}, size_t{700}, size_t{1601}}) {
      BlockTensor to(BlockCoding::kSigned, n), apart(BlockCoding::kSigned, n);
      const auto count = static_cast<int64_t>(n);
      std::vector<float> sums = SumsOf(n, 4);
      const std::vector<float> first = sums;
      StoredSink(to.tensor(), ConstTensor::None(), kSinkRandom)
          .Take(0, count, sums.data());
      to.Expect(first, kSinkRandom);
      // Onto itself, and onto another tensor.
      std::vector<float> want = to.Values();
      sums = SumsOf(n, 5);
      for (size_t i = 0; i < n; ++i) want[i] += sums[i];
      std::vector<float> again = sums;
      StoredSink(apart.tensor(), to.tensor(), kSinkRandom.Next(1))
          .Take(0, count, again.data());
      apart.Expect(want, kSinkRandom.Next(1));
      StoredSink(to.tensor(), to.tensor(), kSinkRandom.Next(2))
          .Take(0, count, sums.data());
      to.Expect(want, kSinkRandom.Next(2));
    }
  });
}

// An infinity cannot be told from a large number in 8 bits, so its block is
// no number, stays so, and is found.
TEST(StoredSink, WhatIsNotFiniteMakesItsBlockNoNumber) {
  ForEachTarget([] {
    constexpr size_t kCount = 320;
    BlockTensor to(BlockCoding::kSigned, kCount);
    const TestContext context(2);
    std::vector<float> sums = SumsOf(kCount, 4);
    StoredSink(to.tensor(), ConstTensor::None(), kSinkRandom)
        .Take(0, kCount, sums.data());
    EXPECT_TRUE(AllFinite(kCount, to.tensor(), *context));
    sums = SumsOf(kCount, 5);
    sums[200] = HUGE_VALF;
    StoredSink(to.tensor(), to.tensor(), kSinkRandom)
        .Take(0, kCount, sums.data());
    sums = SumsOf(kCount, 6);
    StoredSink(to.tensor(), to.tensor(), kSinkRandom)
        .Take(0, kCount, sums.data());
    EXPECT_FALSE(AllFinite(kCount, to.tensor(), *context));
    const std::vector<float> values = to.Values();
    for (size_t i = 0; i < kCount; ++i) {
      EXPECT_EQ(std::isnan(values[i]), i / 64 == 200 / 64) << i;
    }
  });
}

// Keeps what it is handed, and how often.
class Keep final : public PieceSink {
 public:
  explicit Keep(size_t n) : values_(n, NAN), met_(n) {}
  void Take(int64_t first, int64_t n, float* sums) const override {
    EXPECT_EQ(first % kBlock, 0);
    for (int64_t i = 0; i < n; ++i) {
      values_[static_cast<size_t>(first + i)] = sums[i];
      ++met_[static_cast<size_t>(first + i)];
    }
  }
  void ExpectBits(const std::vector<float>& want) const {
    ASSERT_EQ(want.size(), values_.size());
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_EQ(met_[i].load(), 1) << i;
      ASSERT_EQ(std::bit_cast<uint32_t>(values_[i]),
                std::bit_cast<uint32_t>(want[i]))
          << i;
    }
  }

 private:
  mutable std::vector<float> values_;
  mutable std::vector<std::atomic<int>> met_;
};

// Shapes of every way, with rows of whole blocks and others.
const Conv2dShape kConvShapes[] = {
    // Winograd's products
    {16, 8, 8, 16, 3, 3, 1, 1},
    {32, 16, 16, 32, 3, 3, 1, 1},
    {128, 8, 8, 48, 3, 3, 1, 1},
    {40, 8, 8, 16, 3, 3, 1, 1},
    // rows
    {3, 9, 8, 16, 3, 3, 1, 1},
    {32, 8, 8, 64, 3, 3, 2, 1},
    {64, 6, 6, 40, 1, 1, 2, 0},
    {7, 5, 5, 19, 3, 3, 1, 1},
    {192, 5, 4, 33, 3, 3, 1, 1},
    // others
    {5, 9, 9, 70, 5, 5, 1, 2},
    {64, 4, 4, 9, 2, 2, 1, 0},
};

// Whether a convolution hands over what it would store, on the active target.
void ExpectConvPieces(const Conv2dShape& s, DType dtype) {
  SCOPED_TRACE(::testing::Message()
               << s.in_channels << " -> " << s.out_channels << ", "
               << s.kernel_h << "x" << s.kernel_w << ", " << DTypeName(dtype));
  const int64_t images = 3;
  const auto n = static_cast<size_t>(s.out_channels * s.in_channels *
                                     s.kernel_h * s.kernel_w);
  StoredTensor x(
      dtype,
      static_cast<size_t>(images * s.in_channels * s.in_height * s.in_width),
      1);
  StoredTensor grad_y(dtype,
                      static_cast<size_t>(images * s.out_channels *
                                          s.out_height() * s.out_width()),
                      2);
  std::vector<float> want(n);
  const TestContext stored(1, Conv2dGradWeightWorkspace(s));
  Conv2dGradWeight(s, images, {x.tensor()}, grad_y.tensor(),
                   {.to = F32(want.data())}, *stored);
  for (const int threads : {1, 2, 3}) {
    const Keep keep(n);
    const TestContext context(threads, Conv2dGradPiecesWorkspace(s));
    Conv2dGradWeight(s, images, {x.tensor()}, grad_y.tensor(),
                     {.to = Tensor::None(), .pieces = &keep}, *context);
    keep.ExpectBits(want);
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(GradPieces, OfAConvolutionAreWhatItWouldStore) {
  ForEachTarget([] {
    for (const Conv2dShape& s : kConvShapes) {
      ExpectConvPieces(s, DType::kF32);
      ExpectConvPieces(s, DType::kF16);
    }
  });
}

TEST(GradPieces, OfAConvolutionByDotProductsAreWhatItWouldStore) {
  ForEachDotForm([] {
    for (const Conv2dShape& s : kConvShapes) ExpectConvPieces(s, DType::kBF16);
  });
}

// The same of a linear map.
void ExpectLinearPieces(const LinearShape& s, int64_t rows, DType dtype) {
  SCOPED_TRACE(::testing::Message() << s.in << " -> " << s.out << ", " << rows
                                    << " rows, " << DTypeName(dtype));
  StoredTensor x(dtype, static_cast<size_t>(rows * s.in), 1);
  StoredTensor grad_y(dtype, static_cast<size_t>(rows * s.out), 2);
  const auto n = static_cast<size_t>(s.in * s.out);
  std::vector<float> want(n);
  const LinearStorage storage = {dtype, dtype, DType::kF32};
  const TestContext stored(1, LinearGradWeightWorkspace(s, storage));
  LinearGradWeight(s, rows, x.tensor(), grad_y.tensor(), {F32(want.data())},
                   *stored);
  for (const int threads : {1, 2, 3}) {
    const Keep keep(n);
    const TestContext context(threads, LinearGradPiecesWorkspace(s, storage));
    LinearGradWeight(s, rows, x.tensor(), grad_y.tensor(),
                     {.to = Tensor::None(), .pieces = &keep}, *context);
    keep.ExpectBits(want);
    if (::testing::Test::HasFailure()) return;
  }
}

const LinearShape kLinearShapes[] = {{128, 10},  {784, 33}, {27, 65},
                                     {64, 1},    {1, 1},    {1152, 40},
                                     {512, 128}, {785, 9}};

TEST(GradPieces, OfALinearMapAreWhatItWouldStore) {
  ForEachTarget([] {
    for (const LinearShape& s : kLinearShapes) {
      for (const int64_t rows : {0, 1, 300}) {
        ExpectLinearPieces(s, rows, DType::kF32);
        ExpectLinearPieces(s, rows, DType::kBF16);
      }
    }
  });
}

TEST(GradPieces, OfALinearMapByDotProductsAreWhatItWouldStore) {
  ForEachDotForm([] {
    for (const LinearShape& s : kLinearShapes) {
      for (const int64_t rows : {0, 1, 300}) {
        ExpectLinearPieces(s, rows, DType::kBF16);
      }
    }
  });
}

// Of the shapes of wide residual networks, each pass included.
TEST(GradPieces, TakeNoMoreThan128KiBOfAThreadsScratch) {
  for (const int64_t width : {1, 2, 4, 10}) {
    for (const int64_t stage : {1, 2, 4}) {
      for (const int64_t stride : {1, 2}) {
        const int64_t out = 16 * width * stage;
        const int64_t in = stride == 1 ? out : out / 2;
        const int64_t side = 32 / stage * stride;
        for (const int64_t kernel : {1, 3}) {
          const Conv2dShape s = {in,     side,   side,   out,
                                 kernel, kernel, stride, kernel / 2};
          EXPECT_LE(Conv2dGradPiecesWorkspace(s).per_thread, 128u * 1024)
              << in << " -> " << out << ", " << side << ", " << kernel;
        }
      }
    }
  }
}

}  // namespace
}  // namespace thimble::kernels
