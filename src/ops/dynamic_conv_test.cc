// SPDX-License-Identifier: Apache-2.0
#include "ops/dynamic_conv.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "kernels/dynamic_conv/dynamic_conv.h"
#include "ops/test_specs.h"

namespace thimble::ops {
namespace {

// 90 tokens in up to 30 sentences, 2 heads of 5 taps.
const ValueSpec kConvRows = F32({90, 6});
const ValueSpec kConvTaps = F32({90, 10});
const ValueSpec kConvEnds = {{30}, DType::kI32, AxisId(1)};
constexpr DynamicConvSettings kFive = {.heads = 2, .kernel = 5};

std::vector<ValueSpec> ConvInputs() {
  return {kConvRows, kConvTaps, kConvEnds};
}

std::string RefusalOf(const DynamicConvSettings& settings,
                      const ValueSpec& u = kConvRows,
                      const ValueSpec& logits = kConvTaps) {
  // Of all three, it is the same but for the name of u.
  const std::string says =
      Refusal(DynamicConv(settings), {u, logits, kConvEnds});
  EXPECT_EQ(Refusal(DynamicConvGradLogits(settings), {u, logits, u, kConvEnds}),
            says);
  EXPECT_FALSE(DynamicConvGradInput(settings)
                   .Infer(std::vector<ValueSpec>{logits, u, kConvEnds})
                   .ok());
  return says;
}

TEST(DynamicConv, KeepsTheShapeOfWhatItReads) {
  const auto made = DynamicConv(kFive).Infer(ConvInputs());
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ((*made)[0].shape, kConvRows.shape);
  EXPECT_EQ((*made)[0].axis, kConvRows.axis);
  const auto grad_u = DynamicConvGradInput(kFive).Infer(
      std::vector<ValueSpec>{kConvTaps, kConvRows, kConvEnds});
  ASSERT_TRUE(grad_u.ok()) << grad_u.status().message();
  EXPECT_EQ((*grad_u)[0].shape, kConvRows.shape);
  EXPECT_EQ((*grad_u)[0].axis, kConvRows.axis);
  const auto grad_logits = DynamicConvGradLogits(kFive).Infer(
      std::vector<ValueSpec>{kConvRows, kConvTaps, kConvRows, kConvEnds});
  ASSERT_TRUE(grad_logits.ok()) << grad_logits.status().message();
  EXPECT_EQ((*grad_logits)[0].shape, kConvTaps.shape);
  EXPECT_EQ((*grad_logits)[0].axis, kConvTaps.axis);
}

TEST(DynamicConv, RefusesShapesThatDoNotFit) {
  EXPECT_EQ(RefusalOf(kFive, F32({90, 5})),
            "needs u [T, C] with features C that 2 heads divide, got [90, 5]");
  EXPECT_EQ(
      RefusalOf(kFive, F32({90, 2, 3})),
      "needs u [T, C] with features C that 2 heads divide, got [90, 2, 3]");
  EXPECT_EQ(RefusalOf({.heads = 0, .kernel = 5}),
            "needs u [T, C] with features C that 0 heads divide, got [90, 6]");
  const std::string taps =
      "u [90, 6] with 2 heads of 5 taps needs logits [90, 2 x 5], got ";
  for (const ValueSpec& logits :
       {F32({90, 6}), F32({89, 10}), F32({90, 11}), F32({90, 2, 5})}) {
    EXPECT_EQ(RefusalOf(kFive, kConvRows, logits),
              taps + logits.shape.ToString());
  }
  // Heads times taps would be 10 again, if it could overflow.
  EXPECT_FALSE(
      DynamicConv(
          {.heads = 2, .kernel = (int64_t{1} << 62) + 5, .causal = true})
          .Infer(ConvInputs())
          .ok());
  EXPECT_EQ(Refusal(DynamicConv(kFive), {kConvRows, kConvTaps, I32({30, 1})}),
            "ends must be [sentences], got [30, 1]");
  EXPECT_EQ(Refusal(DynamicConvGradLogits(kFive),
                    {kConvRows, kConvTaps, F32({90, 8}), kConvEnds}),
            "u [90, 6] needs a grad_y of its shape, got [90, 8]");
}

TEST(DynamicConv, HasAMiddleTapUnlessItIsCausal) {
  const ValueSpec even = F32({90, 8});
  EXPECT_EQ(
      RefusalOf({.heads = 2, .kernel = 4}, kConvRows, even),
      "the kernel must be at least 1, and odd unless it is causal, got 4");
  EXPECT_TRUE(DynamicConv({.heads = 2, .kernel = 4, .causal = true})
                  .Infer(std::vector<ValueSpec>{kConvRows, even, kConvEnds})
                  .ok());
  EXPECT_NE(
      RefusalOf({.heads = 2, .kernel = 0, .causal = true}).find("at least 1"),
      std::string::npos);
}

TEST(DynamicConv, RefusesADropoutOfAllOrOfNoNumber) {
  for (const float rate : {-0.1f, 1.0f, 2.0f, std::nanf("")}) {
    EXPECT_NE(RefusalOf({.heads = 2, .kernel = 5, .dropout = rate})
                  .find("dropout must be in [0, 1)"),
              std::string::npos)
        << rate;
  }
  // 2^41 values would need more counters than there are.
  const int64_t tokens = int64_t{1} << 38;
  EXPECT_NE(
      RefusalOf({.heads = 2, .kernel = 5}, F32({tokens, 6}), F32({tokens, 10}))
          .find("use a smaller batch"),
      std::string::npos);
}

TEST(DynamicConv, CostsAreThoseOfItsKernels) {
  const DynamicConv forward(kFive);
  const DynamicConvGradInput grad_u(kFive);
  const DynamicConvGradLogits grad_logits(kFive);
  const std::vector<ValueSpec> u_inputs = {kConvTaps, kConvRows, kConvEnds};
  const std::vector<ValueSpec> logits_inputs = {kConvRows, kConvTaps, kConvRows,
                                                kConvEnds};
  constexpr int64_t kProducts = 90 * 6 * 5, kSoftmax = 5 * 90 * 10;
  EXPECT_EQ(forward.Flops(ConvInputs(), {}), 2 * kProducts + kSoftmax);
  EXPECT_EQ(grad_u.Flops(u_inputs, {}), 2 * kProducts + kSoftmax);
  EXPECT_EQ(grad_logits.Flops(logits_inputs, {}),
            2 * kProducts + kSoftmax + 4 * 90 * 10);
  EXPECT_EQ(grad_u.RecomputeFlops(u_inputs, {}), kSoftmax);
  EXPECT_EQ(grad_logits.RecomputeFlops(logits_inputs, {}), kSoftmax);
  const Workspace scratch =
      kernels::DynamicConvWorkspace({.features = 6, .heads = 2, .kernel = 5});
  EXPECT_EQ(forward.Scratch(ConvInputs(), {}), scratch);
  EXPECT_EQ(grad_u.Scratch(u_inputs, {}), scratch);
  EXPECT_EQ(grad_logits.Scratch(logits_inputs, {}), scratch);
}

TEST(DynamicConv, OnlyTheLogitsAreOverwritten) {
  EXPECT_TRUE(DynamicConv(kFive).InPlace().empty());
  EXPECT_TRUE(DynamicConvGradInput(kFive).InPlace().empty());
  const auto pairs = DynamicConvGradLogits(kFive).InPlace();
  ASSERT_EQ(pairs.size(), 1u);
  EXPECT_EQ(pairs[0].input, DynamicConvGradLogits::kLogits);
}

}  // namespace
}  // namespace thimble::ops
