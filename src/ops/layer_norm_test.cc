// SPDX-License-Identifier: Apache-2.0
#include "ops/layer_norm.h"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/layer_norm/layer_norm.h"
#include "ops/test_specs.h"

namespace thimble::ops {
namespace {

TEST(LayerNorm, TakesRowsWithParametersForTheirFeatures) {
  const LayerNorm norm(1e-5f);
  const std::vector<ValueSpec> inputs = {F32({8, 5}), F32({5}), F32({5})};
  const auto made = norm.Infer(inputs);
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ((*made)[0].shape, Shape({8, 5}));
  EXPECT_EQ((*made)[0].axis, kBatchAxis);
  EXPECT_EQ(Refusal(norm, {F32({8, 5, 2}), F32({5}), F32({5})}),
            "needs rows [N, C], got [8, 5, 2]");
  EXPECT_EQ(Refusal(norm, {F32({8, 5}), F32({8}), F32({5})}),
            "needs parameters [C] for rows [8, 5], got [8]");
  EXPECT_EQ(Refusal(norm, {F32({8, 5}), F32({5}), F32({1, 5})}),
            "needs parameters [C] for rows [8, 5], got [1, 5]");
  EXPECT_EQ(Refusal(LayerNorm(0.0f), inputs), "needs epsilon > 0, got 0");
}

TEST(LayerNorm, CostsAreThoseOfItsKernels) {
  const std::vector<ValueSpec> inputs = {F32({80, 5}), F32({5}), F32({80, 5})};
  const LayerNorm norm(1e-5f);
  const LayerNormGrad grad(1e-5f, true), alone(1e-5f, false);
  EXPECT_EQ(norm.Flops(inputs, *norm.Infer(inputs)), 8 * 80 * 5);
  EXPECT_EQ(norm.Scratch(inputs, {}), Workspace{});
  EXPECT_EQ(grad.Flops(inputs, *grad.Infer(inputs)), 18 * 80 * 5);
  EXPECT_EQ(alone.Flops(inputs, *alone.Infer(inputs)), 9 * 80 * 5);
  EXPECT_EQ(grad.Scratch(inputs, {}), kernels::LayerNormGradWorkspace(80, 5));
  EXPECT_EQ(grad.InPlace().size(), 2u);
  EXPECT_TRUE(alone.InPlace().empty());
  EXPECT_EQ(alone.Infer(inputs)->size(), 2u);
}

}  // namespace
}  // namespace thimble::ops
