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
#include "kernels/dot/winograd_model.h"
#include "kernels/stored_tensor.h"
#include "kernels/testing.h"

namespace thimble::kernels {
namespace {

using testing::StoredTensor;
using testing::TestContext;

Conv2dShape ThreeByThree(int64_t in, int64_t height, int64_t width,
                         int64_t out) {
  return {.in_channels = in,
          .in_height = height,
          .in_width = width,
          .out_channels = out,
          .kernel_h = 3,
          .kernel_w = 3,
          .stride = 1,
          .padding = 1};
}

// Every width; planes of one strip and of several; different numbers of
// channels and outputs, of which some do not divide evenly into groups and
// chunks; the shapes of WRN-28-2 and of wrn-10-1.
struct Case {
  Conv2dShape shape;
  int64_t images;
};
const Case kCases[] = {
    {ThreeByThree(16, 32, 32, 16), 1}, {ThreeByThree(16, 8, 8, 32), 10},
    {ThreeByThree(40, 4, 16, 48), 2},  {ThreeByThree(24, 16, 32, 16), 2},
    {ThreeByThree(16, 24, 8, 80), 3},  {ThreeByThree(32, 32, 32, 32), 1},
    {ThreeByThree(64, 16, 16, 64), 1}, {ThreeByThree(128, 8, 8, 128), 2}};

struct Operands {
  explicit Operands(const Case& c)
      : x(DType::kBF16,
          static_cast<size_t>(c.images * c.shape.in_channels *
                              c.shape.in_height * c.shape.in_width),
          1),
        w(DType::kBF16,
          static_cast<size_t>(c.shape.out_channels * c.shape.in_channels * 9),
          2),
        y(DType::kBF16,
          static_cast<size_t>(c.images * c.shape.out_channels *
                              c.shape.in_height * c.shape.in_width),
          3),
        scale(testing::Randoms(c.shape.in_channels, 4, 0.5f, 1.5f)),
        shift(testing::Randoms(c.shape.in_channels, 5, -0.5f, 0.5f)) {}
  // Forward, or x as what relu(x * scale + shift) is computed of.
  Conv2dInput Input(int prologue) {
    Conv2dInput input{.x = x.tensor()};
    if (prologue == 0) return input;
    input.scale = scale.data();
    input.shift = shift.data();
    input.relu = prologue == 2;
    return input;
  }
  StoredTensor x, w, y;
  std::vector<float> scale, shift;
};

void ExpectBits(StoredTensor& got, const std::vector<float>& want,
                const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_EQ(dot::BitsAt(got.tensor(), static_cast<int64_t>(i)),
              dot::Bf16Of(want[i]))
        << what << ", element " << i;
  }
}

dot::WinogradPass PassOf(const Conv2dShape& s, bool forward) {
  dot::WinogradPass pass;
  const Workspace workspace =
      forward ? Conv2dForwardWorkspace(s) : Conv2dGradInputWorkspace(s);
  EXPECT_TRUE(dot::MakeWinogradPass(s, forward, workspace.per_thread, pass));
  return pass;
}

TEST(DotWinograd, ForwardIsTheModelToTheBit) {
  for (const Case& c : kCases) {
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
}

TEST(DotWinograd, GradientOfTheInputIsTheModelToTheBit) {
  for (const Case& c : kCases) {
    Operands o(c);
    const Conv2dShape& s = c.shape;
    if (s.in_channels % dot::kOutputBlock != 0) continue;
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
}

TEST(DotWinograd, GradientOfTheWeightsIsTheModelToTheBit) {
  for (const Case& c : kCases) {
    Operands o(c);
    const Conv2dShape& s = c.shape;
    dot::WinogradWeightPass pass;
    ASSERT_TRUE(dot::MakeWinogradWeightPass(
        s, Conv2dGradWeightWorkspace(s).per_thread, pass));
    for (const int prologue : {0, 2}) {
      const Conv2dInput input = o.Input(prologue);
      const std::vector<float> want =
          dot::ModelWeightGrad(pass, c.images, input, o.y.tensor());
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

// Rounding to bf16 is off by at most 2^-9 of a value, by 2^-9 / sqrt(3) on
// average at worst. Three roundings (input, weights, output) are independent.
// In the transformed products each of the 16 has the norm of all 36 of direct
// sums, or more: their errors come back multiplied by at most 9/4, the ratio of
// what A' ... A adds up to what it keeps.
TEST(DotWinograd, ErrsByNoMoreThanItsRoundings) {
  for (const Case& c : {kCases[5], kCases[6], kCases[7]}) {
    Operands o(c);
    const Conv2dShape& s = c.shape;
    std::vector<double> want(o.y.size());
    reference::Conv2dForward(s, c.images, o.x.Wide().data(), o.w.Wide().data(),
                             want.data());
    testing::ForEachDotForm([&] {
      const TestContext context(2, Conv2dForwardWorkspace(s));
      StoredTensor y(DType::kBF16, o.y.size());
      Conv2dForward(s, c.images, o.Input(0), o.w.tensor(), {.to = y.tensor()},
                    *context);
      double error = 0.0, norm = 0.0;
      for (size_t i = 0; i < want.size(); ++i) {
        error += (y.Get(i) - want[i]) * (y.Get(i) - want[i]);
        norm += want[i] * want[i];
      }
      const double rounding = std::ldexp(1.0, -9) / std::sqrt(3.0);
      EXPECT_LE(std::sqrt(error / norm), 9.0 / 4.0 * std::sqrt(3.0) * rounding);
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
    EXPECT_FALSE(dot::MakeWinogradWeightPass(s, plenty, weight));
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
    ForceDotForm(std::nullopt);
    EXPECT_EQ(y.Bytes(), before.Bytes());
  });
}

}  // namespace
}  // namespace thimble::kernels
