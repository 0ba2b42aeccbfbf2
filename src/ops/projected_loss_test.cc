// SPDX-License-Identifier: Apache-2.0
#include "ops/projected_loss.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "kernels/matmul/matmul.h"
#include "ops/test_specs.h"

namespace thimble::ops {
namespace {

constexpr int64_t kLossTokens = 300, kLossFeatures = 6, kLossClasses = 1000;
const ValueSpec kLossX = F32({kLossTokens, kLossFeatures});
const ValueSpec kLossW = {{kLossClasses, kLossFeatures}, DType::kF32};
const ValueSpec kLossLabels = I32({kLossTokens});
const ProjectedCrossEntropy kLoss(0.1);
const ProjectedCrossEntropyGrad kGrad(0.1f);

std::vector<ValueSpec> LossInputs() { return {kLossX, kLossW, kLossLabels}; }

TEST(ProjectedCrossEntropy, GivesLossesAndGradientsLikeItsInputs) {
  const auto made = kLoss.Infer(LossInputs());
  ASSERT_TRUE(made.ok()) << made.status().message();
  ASSERT_EQ(made->size(), 3u);
  for (const ValueSpec& spec : *made) EXPECT_EQ(spec.shape, Shape({1}));
  EXPECT_EQ((*made)[ProjectedCrossEntropy::kHits].storage, DType::kI32);
  std::vector<ValueSpec> inputs = LossInputs();
  inputs[ProjectedCrossEntropy::kW].storage.sparsity =
      Sparsity{.kept = 10, .block = {2, 2}, .member = 0};
  for (const auto& in : {LossInputs(), inputs}) {
    const auto grads = kGrad.Infer(in);
    ASSERT_TRUE(grads.ok()) << grads.status().message();
    const ValueSpec& grad_w = (*grads)[ProjectedCrossEntropyGrad::kGradW];
    const ValueSpec& grad_x = (*grads)[ProjectedCrossEntropyGrad::kGradX];
    EXPECT_EQ(grad_w.shape, kLossW.shape);
    EXPECT_FALSE(grad_w.axis.valid());
    EXPECT_EQ(grad_w.storage.sparsity,
              in[ProjectedCrossEntropy::kW].storage.sparsity);
    EXPECT_EQ(grad_x.shape, kLossX.shape);
    EXPECT_EQ(grad_x.axis, kLossX.axis);
  }
}

TEST(ProjectedCrossEntropy, RefusesShapesThatDoNotFit) {
  const std::string says =
      "needs rows [T, C], weights [V, C] and labels [T], got ";
  for (const auto& inputs : {
           std::vector<ValueSpec>{kLossX, kLossW, I32({kLossTokens - 1})},
           std::vector<ValueSpec>{kLossX, F32({kLossClasses, 5}), kLossLabels},
           std::vector<ValueSpec>{F32({kLossTokens, 2, 3}), kLossW,
                                  kLossLabels},
           std::vector<ValueSpec>{kLossX, F32({kLossClasses}), kLossLabels},
           std::vector<ValueSpec>{kLossX, kLossW, I32({kLossTokens, 1})},
       }) {
    const std::string want = says + inputs[0].shape.ToString() + ", " +
                             inputs[1].shape.ToString() + " and " +
                             inputs[2].shape.ToString();
    EXPECT_EQ(Refusal(kLoss, inputs), want);
    EXPECT_EQ(Refusal(kGrad, inputs), want);
  }
  for (const double smoothing : {-0.1, 1.0, std::nan("")}) {
    EXPECT_NE(Refusal(ProjectedCrossEntropy(smoothing), LossInputs())
                  .find("smoothing must be in [0, 1)"),
              std::string::npos)
        << smoothing;
  }
}

TEST(ProjectedCrossEntropy, CountsProductsAgainInBackward) {
  constexpr int64_t kProducts = 2 * kLossTokens * kLossFeatures * kLossClasses;
  constexpr int64_t kLogits = 4 * kLossTokens * kLossClasses;
  EXPECT_EQ(kLoss.Flops(LossInputs(), {}), kProducts + kLogits);
  EXPECT_EQ(kGrad.Flops(LossInputs(), {}), 3 * kProducts + kLogits);
  EXPECT_EQ(kGrad.RecomputeFlops(LossInputs(), {}), kProducts);
  std::vector<ValueSpec> inputs = LossInputs();
  inputs[ProjectedCrossEntropy::kW].storage.sparsity =
      Sparsity{.kept = 10, .block = {2, 1}, .member = 0};
  EXPECT_EQ(kGrad.RecomputeFlops(inputs, {}), 2 * kLossTokens * 20);
  EXPECT_EQ(kLoss.TakesSparse(), 1u << ProjectedCrossEntropy::kW);
}

// Per token it grows by the three numbers that are told of it, not by logits.
TEST(ProjectedCrossEntropy, ScratchHasLogitsOfOneBlockOfRows) {
  const auto of = [](const OpDef& op, int64_t tokens) {
    const std::vector<ValueSpec> inputs = {F32({tokens, kLossFeatures}), kLossW,
                                           I32({tokens})};
    return op.Scratch(inputs, *op.Infer(inputs));
  };
  for (const OpDef* op :
       {static_cast<const OpDef*>(&kLoss), static_cast<const OpDef*>(&kGrad)}) {
    const Workspace block = of(*op, kRowsAtOnce);
    const Workspace many = of(*op, 16 * kRowsAtOnce);
    EXPECT_EQ(many.per_thread, block.per_thread);
    EXPECT_EQ(many.shared - block.shared,
              static_cast<size_t>(3 * 4 * 15 * kRowsAtOnce));
    EXPECT_LT(of(*op, 1).shared, block.shared / 8);
    EXPECT_GE(block.shared,
              static_cast<size_t>(kRowsAtOnce * kLossClasses) * sizeof(float));
  }
}

}  // namespace
}  // namespace thimble::ops
