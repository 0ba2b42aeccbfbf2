// SPDX-License-Identifier: Apache-2.0
//
// Winograd's convolution with dot products: against a model to the bit, and its
// error against the exact convolution of the same numbers.
#include "kernels/dot/winograd.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/conv/reference.h"
#include "kernels/dot/dot_form.h"
#include "kernels/dot/test_form.h"
#include "kernels/dot/test_winograd.h"
#include "kernels/dot/winograd_model.h"
#include "kernels/dot/winograd_pass.h"
#include "kernels/stored_tensor.h"
#include "kernels/testing.h"

namespace thimble::kernels {
namespace {

using testing::ExpectBits;
using testing::PassOf;
using testing::StoredTensor;
using testing::TestContext;
using testing::ThreeByThree;
using Case = testing::WinogradCase;
using Operands = testing::WinogradOperands;

// Every width; planes of one strip and of several; different numbers of
// channels and outputs, of which some do not divide evenly into groups and
// chunks.
const Case kSmallCases[] = {{ThreeByThree(16, 32, 32, 16), 1},
                            {ThreeByThree(16, 8, 8, 32), 10},
                            {ThreeByThree(40, 4, 16, 48), 2},
                            {ThreeByThree(24, 16, 32, 16), 2},
                            {ThreeByThree(16, 24, 8, 80), 3}};
// Those of WRN-28-2.
const Case kWideCases[] = {{ThreeByThree(32, 32, 32, 32), 1},
                           {ThreeByThree(64, 16, 16, 64), 1},
                           {ThreeByThree(128, 8, 8, 128), 2}};

void CheckForward(const Case& c) {
  Operands o(c);
  const Conv2dShape& s = c.shape;
  for (const int prologue : {0, 1, 2}) {
    const Conv2dInput input = o.Input(prologue);
    const std::vector<float> want =
        dot::ModelSums(PassOf(s, true), c.images, input, o.w.tensor());
    testing::ForEachDotForm([&] {
      for (const int threads : {1, 2, 3}) {
        const TestContext context(threads, Conv2dForwardWorkspace(s));
        StoredTensor y(DType::kBF16, o.y.size());
        Conv2dForward(s, c.images, input, o.w.tensor(), {.to = y.tensor()},
                      *context);
        ExpectBits(y, want,
                   std::to_string(s.in_channels) + " channels, prologue " +
                       std::to_string(prologue));
      }
    });
  }
}

TEST(DotWinograd, ForwardIsTheModelToTheBit) {
  for (const Case& c : kSmallCases) CheckForward(c);
}
TEST(DotWinograd, ForwardIsTheModelToTheBitInWideResNets) {
  for (const Case& c : kWideCases) CheckForward(c);
}

void CheckGradInput(const Case& c) {
  Operands o(c);
  const Conv2dShape& s = c.shape;
  if (s.in_channels % dot::kOutputBlock != 0) return;
  const std::vector<float> want = dot::ModelSums(
      PassOf(s, false), c.images, {.x = o.y.tensor()}, o.w.tensor());
  testing::ForEachDotForm([&] {
    for (const int threads : {1, 2, 3}) {
      const TestContext context(threads, Conv2dGradInputWorkspace(s));
      StoredTensor grad(DType::kBF16, o.x.size());
      Conv2dGradInput(s, c.images, o.y.tensor(), o.w.tensor(),
                      {.to = grad.tensor()}, *context);
      ExpectBits(grad, want, std::to_string(s.in_channels) + " channels");
    }
  });
}

TEST(DotWinograd, GradientOfTheInputIsTheModelToTheBit) {
  for (const Case& c : kSmallCases) CheckGradInput(c);
}
TEST(DotWinograd, GradientOfTheInputIsTheModelToTheBitInWideResNets) {
  for (const Case& c : kWideCases) CheckGradInput(c);
}

void CheckGradWeight(const Case& c) {
  Operands o(c);
  const Conv2dShape& s = c.shape;
  dot::WinogradWeightPass pass;
  ASSERT_TRUE(
      dot::MakeWinogradWeightPass(s, conv::WeightScratchOf(s), false, pass));
  for (const int prologue : {0, 2}) {
    const Conv2dInput input = o.Input(prologue);
    const std::vector<float> want =
        dot::ModelWeightGrad(s, c.images, input, o.y.tensor());
    std::vector<float> sums = want;
    for (size_t i = 0; i < sums.size(); ++i) {
      sums[i] += static_cast<float>(o.w.Get(i));
    }
    testing::ForEachDotForm([&] {
      for (const int threads : {1, 2, 3}) {
        const TestContext context(threads, Conv2dGradWeightWorkspace(s));
        StoredTensor grad(DType::kBF16, o.w.size());
        Conv2dGradWeight(s, c.images, input, o.y.tensor(),
                         {.to = grad.tensor()}, *context);
        ExpectBits(grad, want, std::to_string(s.in_channels) + " channels");
        grad.CopyFrom(o.w);
        Conv2dGradWeight(s, c.images, input, o.y.tensor(),
                         {.to = grad.tensor(), .accumulate = true}, *context);
        ExpectBits(grad, sums, "added");
      }
    });
  }
}

TEST(DotWinograd, GradientOfTheWeightsIsTheModelToTheBit) {
  for (const Case& c : kSmallCases) CheckGradWeight(c);
}
TEST(DotWinograd, GradientOfTheWeightsIsTheModelToTheBitInWideResNets) {
  for (const Case& c : kWideCases) CheckGradWeight(c);
}

TEST(DotWinograd, GradientOfTheWeightsIsZeroWithoutImages) {
  const Conv2dShape s = ThreeByThree(16, 8, 8, 32);
  Operands o({s, 1});
  testing::ForEachDotForm([&] {
    const TestContext context(1, Conv2dGradWeightWorkspace(s));
    StoredTensor grad(DType::kBF16, o.w.size());
    grad.CopyFrom(o.w);
    Conv2dGradWeight(s, 0, o.Input(0), o.y.tensor(), {.to = grad.tensor()},
                     *context);
    ExpectBits(grad, std::vector<float>(o.w.size()), "no images");
  });
}

// Two threads have work, also where a gradient is handed over in pieces, and
// its chunks are those of a region.
TEST(DotWinograd, GradientOfTheWeightsIsWorkForTwoThreadsInWideResNets) {
  for (const Case& c : kWideCases) {
    const conv::WeightScratch scratch = conv::WeightScratchOf(c.shape);
    dot::WinogradWeightPass stored, pieces;
    ASSERT_TRUE(dot::MakeWinogradWeightPass(c.shape, scratch, false, stored));
    ASSERT_TRUE(dot::MakeWinogradWeightPass(c.shape, scratch, true, pieces));
    EXPECT_EQ(stored.units() % 2, 0);
    EXPECT_LE(stored.Bytes(), scratch.stored);
    const GradRegions regions = conv::WeightRegions(c.shape);
    EXPECT_EQ(regions.count() % 2, 0);
    EXPECT_LE(pieces.block, regions.outputs());
    EXPECT_LE(pieces.chunk * 9, regions.columns());
    EXPECT_LE(pieces.Bytes(), scratch.in_pieces);
  }
}

// Denormals are flushed on the way in, in between and on the way out: the model
// says where. Some products are just below what is normal.
TEST(DotWinograd, FlushesWhatIsTiny) {
  const Case c{ThreeByThree(16, 8, 8, 16), 2};
  Operands o(c);
  for (size_t i = 0; i < o.x.size(); ++i) {
    o.x.Set(
        i, std::ldexp(static_cast<float>(o.x.Get(i)), i % 3 == 0 ? -126 : -70));
  }
  for (size_t i = 0; i < o.w.size(); ++i) {
    o.w.Set(i, std::ldexp(static_cast<float>(o.w.Get(i)), -57));
  }
  const Conv2dShape& s = c.shape;
  const std::vector<float> want =
      dot::ModelSums(PassOf(s, true), c.images, o.Input(0), o.w.tensor());
  testing::ForEachDotForm([&] {
    const TestContext context(1, Conv2dForwardWorkspace(s));
    StoredTensor y(DType::kBF16, o.y.size());
    Conv2dForward(s, c.images, o.Input(0), o.w.tensor(), {.to = y.tensor()},
                  *context);
    ExpectBits(y, want, "tiny");
  });
}

// The sum of squares of the products that output pixel (row, col) of a tile
// adds up, with A's signs, which do not matter here.
double SquaresOf(const dot::WinogradPass& pass, const dot::Products* x,
                 int64_t tiles, const dot::Products* w, size_t row,
                 size_t col) {
  double squares = 0.0;
  for (size_t k = 0; k < 16; ++k) {
    if (k / 4 == 3 - 3 * row || k % 4 == 3 - 3 * col) continue;
    for (int64_t c = 0; c < pass.grid.channels; ++c) {
      const double product =
          static_cast<double>(dot::Bf16ToFloat(x[c * tiles][k])) *
          static_cast<double>(dot::Bf16ToFloat(w[c][k]));
      squares += product * product;
    }
  }
  return squares;
}

// A rounding to bf16 is off by at most 2^-8 of a value, evenly spread: in the
// mean square by at most (2^-8)^2 / 3, which values just above a power of two
// reach and others do not. Both factors of a product are rounded, and so is the
// result; errors of different products are independent. So much at most is the
// mean square error of all outputs together; those of f32 are nothing beside.
TEST(DotWinograd, ErrsByNoMoreThanItsRoundingsInWideResNets) {
  for (const Case& c : kWideCases) {
    Operands o(c);
    const Conv2dShape& s = c.shape;
    const dot::WinogradPass pass = PassOf(s, true);
    const int64_t tiles = s.in_height * s.in_width / 4;
    const auto x = dot::TransformedTiles(pass.grid, o.Input(0), c.images, 4, 1,
                                         dot::InputTransform);
    const auto w = dot::TransformedWeights(pass, o.w.tensor());
    std::vector<double> want(o.y.size());
    reference::Conv2dForward(s, c.images, o.x.Wide().data(), o.w.Wide().data(),
                             want.data());
    double expected = 0.0;
    for (size_t i = 0; i < want.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      const int64_t col = at % s.in_width, row = at / s.in_width % s.in_height;
      const int64_t plane = at / s.in_width / s.in_height;
      const int64_t tile = row / 2 * (s.in_width / 2) + col / 2;
      const int64_t first =
          plane / s.out_channels * s.in_channels * tiles + tile;
      expected += want[i] * want[i] +
                  2.0 * SquaresOf(pass, &x[static_cast<size_t>(first)], tiles,
                                  &w[static_cast<size_t>(
                                      plane % s.out_channels * s.in_channels)],
                                  static_cast<size_t>(row % 2),
                                  static_cast<size_t>(col % 2));
    }
    expected *= std::ldexp(1.0, -16) / 3.0;
    testing::ForEachDotForm([&] {
      const TestContext context(2, Conv2dForwardWorkspace(s));
      StoredTensor y(DType::kBF16, o.y.size());
      Conv2dForward(s, c.images, o.Input(0), o.w.tensor(), {.to = y.tensor()},
                    *context);
      double error = 0.0;
      for (size_t i = 0; i < want.size(); ++i) {
        error += (y.Get(i) - want[i]) * (y.Get(i) - want[i]);
      }
      EXPECT_LE(std::sqrt(error), std::sqrt(expected));
    });
  }
}

TEST(DotWinograd, LeavesOtherShapesAndTypesToOtherWays) {
  const size_t plenty = size_t{1} << 30;
  dot::WinogradPass pass;
  dot::WinogradWeightPass weight;
  for (const Conv2dShape& s :
       {ThreeByThree(16, 10, 10, 16), ThreeByThree(16, 8, 8, 24),
        ThreeByThree(3, 32, 32, 16), ThreeByThree(20, 16, 16, 32)}) {
    EXPECT_FALSE(dot::MakeWinogradPass(s, true, plenty, pass));
    EXPECT_FALSE(
        dot::MakeWinogradWeightPass(s, {plenty, plenty}, false, weight));
  }
  EXPECT_FALSE(
      dot::MakeWinogradPass(ThreeByThree(32, 32, 32, 32), true, 4096, pass));
  // A tensor in f32, or no form at all: as without dot products.
  const Case c{ThreeByThree(16, 8, 8, 16), 2};
  const Conv2dShape& s = c.shape;
  Operands o(c);
  StoredTensor x(DType::kF32, o.x.size(), 1);
  const TestContext context(1, Conv2dForwardWorkspace(s));
  StoredTensor before(DType::kBF16, o.y.size()), y(DType::kBF16, o.y.size());
  testing::ForEachTarget([&] {
    ForceDotForm(DotForm::kNone);
    Conv2dForward(s, c.images, {.x = x.tensor()}, o.w.tensor(),
                  {.to = before.tensor()}, *context);
    if (IsSupported(DotForm::kEmulated)) ForceDotForm(DotForm::kEmulated);
    Conv2dForward(s, c.images, {.x = x.tensor()}, o.w.tensor(),
                  {.to = y.tensor()}, *context);
    EXPECT_EQ(y.Bytes(), before.Bytes());
  });
}

}  // namespace
}  // namespace thimble::kernels
