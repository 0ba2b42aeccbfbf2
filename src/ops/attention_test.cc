// SPDX-License-Identifier: Apache-2.0
#include "ops/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "kernels/attention/attention.h"
#include "ops/test_specs.h"

namespace thimble::ops {
namespace {

// 90 queries and 70 keys in up to 30 sentences.
const ValueSpec kQueryRows = F32({90, 6});
const ValueSpec kKeyRows = {{70, 6}, DType::kF32, AxisId(1)};
const ValueSpec kEndsOfBoth = {{30}, DType::kI32, AxisId(2)};
constexpr AttentionSettings kTwoHeads = {.heads = 2};

std::vector<ValueSpec> AttentionInputs() {
  return {kQueryRows, kKeyRows, kKeyRows, kEndsOfBoth, kEndsOfBoth};
}
std::vector<ValueSpec> WithInput(size_t k, const ValueSpec& spec) {
  std::vector<ValueSpec> inputs = AttentionInputs();
  inputs[k] = spec;
  return inputs;
}
std::vector<ValueSpec> AttentionGradInputs() {
  std::vector<ValueSpec> inputs = AttentionInputs();
  inputs.push_back(kQueryRows);
  return inputs;
}

TEST(Attention, GivesARowForEachQueryAndGradientsLikeItsInputs) {
  const auto made = Attention(kTwoHeads).Infer(AttentionInputs());
  ASSERT_TRUE(made.ok()) << made.status().message();
  ASSERT_EQ(made->size(), 1u);
  EXPECT_EQ((*made)[0].shape, kQueryRows.shape);
  EXPECT_EQ((*made)[0].axis, kQueryRows.axis);
  const auto grads = AttentionGrad(kTwoHeads).Infer(AttentionGradInputs());
  ASSERT_TRUE(grads.ok()) << grads.status().message();
  ASSERT_EQ(grads->size(), 3u);
  for (size_t k = 0; k < 3; ++k) {
    EXPECT_EQ((*grads)[k].shape, AttentionInputs()[k].shape) << k;
    EXPECT_EQ((*grads)[k].axis, AttentionInputs()[k].axis) << k;
  }
}

TEST(Attention, RefusesTextsThatDoNotFitEachOther) {
  const Attention attention(kTwoHeads);
  EXPECT_EQ(Refusal(attention, WithInput(Attention::kQ, F32({90, 5}))),
            "needs q [T, C] with features C that 2 heads divide, got [90, 5]");
  EXPECT_EQ(
      Refusal(attention, WithInput(Attention::kQ, F32({90, 2, 3}))),
      "needs q [T, C] with features C that 2 heads divide, got [90, 2, 3]");
  EXPECT_EQ(Refusal(Attention({.heads = 0}), AttentionInputs()),
            "needs q [T, C] with features C that 0 heads divide, got [90, 6]");
  const std::string keys = "q [90, 6] needs k and v [S, 6] of the same S, got ";
  EXPECT_EQ(Refusal(attention, WithInput(Attention::kK, F32({70, 8}))),
            keys + "[70, 8] and [70, 6]");
  EXPECT_EQ(Refusal(attention, WithInput(Attention::kK, F32({70}))),
            keys + "[70] and [70, 6]");
  EXPECT_EQ(Refusal(attention, WithInput(Attention::kV, F32({71, 6}))),
            keys + "[70, 6] and [71, 6]");
  EXPECT_EQ(Refusal(attention, WithInput(Attention::kQueryEnds, I32({31}))),
            "both texts need the same number of sentences, got ends [31] and "
            "[30]");
  EXPECT_EQ(Refusal(attention, WithInput(Attention::kKeyEnds, I32({30, 1}))),
            "key_ends must be [sentences], got [30, 1]");
  EXPECT_EQ(Refusal(attention, WithInput(Attention::kQueryEnds, I32({30, 1}))),
            "query_ends must be [sentences], got [30, 1]");
}

TEST(Attention, BackwardRefusesWhatForwardDoes) {
  const AttentionGrad grad(kTwoHeads);
  for (const ValueSpec& grad_y : {F32({90, 8}), F32({70, 6}), F32({90})}) {
    std::vector<ValueSpec> inputs = AttentionGradInputs();
    inputs[AttentionGrad::kGradY] = grad_y;
    EXPECT_EQ(Refusal(grad, inputs),
              "q [90, 6] needs a grad_y of its shape, got " +
                  grad_y.shape.ToString());
  }
  std::vector<ValueSpec> inputs = AttentionGradInputs();
  inputs[Attention::kV] = F32({71, 6});
  EXPECT_NE(Refusal(grad, inputs).find("[71, 6]"), std::string::npos);
  EXPECT_FALSE(AttentionGrad({.heads = 4}).Infer(AttentionGradInputs()).ok());
}

TEST(Attention, RefusesADropoutOfAllOrOfNoNumber) {
  for (const float rate : {-0.1f, 1.0f, 2.0f, std::nanf("")}) {
    EXPECT_NE(
        Refusal(Attention({.heads = 2, .dropout = rate}), AttentionInputs())
            .find("dropout must be in [0, 1)"),
        std::string::npos)
        << rate;
    EXPECT_FALSE(AttentionGrad({.heads = 2, .dropout = rate})
                     .Infer(AttentionGradInputs())
                     .ok());
  }
  EXPECT_TRUE(
      Attention({.heads = 2, .dropout = 0.999f}).Infer(AttentionInputs()).ok());
}

TEST(Attention, CountsSentencesOf32Keys) {
  const Attention attention(kTwoHeads);
  const AttentionGrad grad(kTwoHeads);
  constexpr int64_t kProducts = 90 * 6 * 32, kProbabilities = 90 * 32 * 2;
  EXPECT_EQ(attention.Flops(AttentionInputs(), {}),
            4 * kProducts + 6 * kProbabilities);
  EXPECT_EQ(grad.Flops(AttentionGradInputs(), {}),
            10 * kProducts + 12 * kProbabilities);
  EXPECT_EQ(grad.RecomputeFlops(AttentionGradInputs(), {}),
            2 * kProducts + 6 * kProbabilities);
  std::vector<ValueSpec> few = AttentionInputs();
  few[Attention::kK] = few[Attention::kV] = F32({7, 6});
  EXPECT_EQ(attention.Flops(few, {}), 4 * 90 * 6 * 7 + 6 * 90 * 7 * 2);
}

TEST(Attention, ScratchIsTheKernels) {
  // Some of it grows with queries, some with keys.
  for (const auto& [queries, keys] :
       {std::pair{90, 70}, std::pair{5000, 70}, std::pair{90, 5000}}) {
    std::vector<ValueSpec> inputs = AttentionGradInputs();
    inputs[Attention::kQ] = inputs[AttentionGrad::kGradY] = F32({queries, 6});
    inputs[Attention::kK] = inputs[Attention::kV] = F32({keys, 6});
    EXPECT_EQ(Attention(kTwoHeads).Scratch(inputs, {}),
              kernels::AttentionWorkspace(keys));
    EXPECT_EQ(AttentionGrad(kTwoHeads).Scratch(inputs, {}),
              kernels::AttentionGradWorkspace({.features = 6, .heads = 2},
                                              queries, keys));
  }
}

TEST(Attention, MayWriteOverQueriesAndGradientsOverKeysAndValues) {
  const auto forward = Attention(kTwoHeads).InPlace();
  ASSERT_EQ(forward.size(), 1u);
  EXPECT_EQ(forward[0].input, Attention::kQ);
  EXPECT_EQ(forward[0].output, 0u);
  const auto backward = AttentionGrad(kTwoHeads).InPlace();
  ASSERT_EQ(backward.size(), 2u);
  for (const InPlacePair& pair : backward) {
    EXPECT_EQ(pair.input, pair.output);
    EXPECT_NE(pair.input, Attention::kQ);
  }
}

}  // namespace
}  // namespace thimble::ops
