// SPDX-License-Identifier: Apache-2.0
#include "ops/embedding.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/embedding/embedding.h"
#include "ops/test_specs.h"

namespace thimble::ops {
namespace {

const ValueSpec kTokens = I32({90});
const ValueSpec kEnds = {{30}, DType::kI32, AxisId(1)};
const ValueSpec kTable = {{12, 6}, DType::kF32};

TEST(Embedding, MakesARowForEachToken) {
  const Embedding with(1.0f, true), without(1.0f, false);
  const std::vector<ValueSpec> inputs = {kTokens, kTable, kEnds};
  const auto made = with.Infer(inputs);
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ((*made)[0].shape, Shape({90, 6}));
  EXPECT_EQ((*made)[0].axis, kTokens.axis);
  EXPECT_EQ(Refusal(with, {I32({9, 1}), kTable, kEnds}),
            "needs tokens [N] and weights [V, C], got [9, 1] and [12, 6]");
  EXPECT_EQ(Refusal(with, {kTokens, kTable, I32({3, 1})}),
            "needs ends of sentences [S], got [3, 1]");
  // An odd number of features has no cosine for the last sine; two have no
  // frequency besides the first.
  for (const int64_t features : {1, 2, 5}) {
    const ValueSpec w = {{12, features}, DType::kF32};
    EXPECT_NE(Refusal(with, {kTokens, w, kEnds}).find(w.shape.ToString()),
              std::string::npos);
    EXPECT_TRUE(without.Infer(std::vector<ValueSpec>{kTokens, w}).ok());
  }
}

TEST(Embedding, GradientIsStoredLikeTheWeight) {
  Storage storage = DType::kF32;
  storage.sparsity = Sparsity{.kept = 10, .block = {2, 2}, .member = 0};
  const EmbeddingGrad grad(1.0f, 12, storage);
  const auto made = grad.Infer(std::vector<ValueSpec>{kTokens, F32({90, 6})});
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ((*made)[0].shape, kTable.shape);
  EXPECT_EQ((*made)[0].storage, storage);
  EXPECT_FALSE((*made)[0].axis.valid());
  EXPECT_EQ(Embedding(1.0f, true).TakesSparse(), 0b10u);
}

TEST(Embedding, CostsAreThoseOfItsKernels) {
  const std::vector<ValueSpec> inputs = {kTokens, kTable, kEnds};
  const std::vector<ValueSpec> y = {F32({90, 6})};
  const kernels::EmbeddingShape dense = {.vocabulary = 12, .features = 6};
  EXPECT_EQ(Embedding(1.0f, true).Flops(inputs, y), 13 * 90 * 6);
  EXPECT_EQ(Embedding(1.0f, false).Flops(inputs, y), 90 * 6);
  EXPECT_EQ(Embedding(1.0f, true).Scratch(inputs, y),
            kernels::EmbeddingWorkspace(dense));
  const std::vector<ValueSpec> grads = {kTokens, F32({90, 6})};
  const EmbeddingGrad grad(1.0f, 12, DType::kF32);
  std::vector<ValueSpec> w = {kTable};
  EXPECT_EQ(grad.Flops(grads, w), 90 * 6 + 12 * 6);
  EXPECT_EQ(grad.Scratch(grads, w), kernels::EmbeddingGradWorkspace(dense, 90));
  w[0].storage = U8InBlocks();
  EXPECT_EQ(grad.Scratch(grads, w),
            kernels::EmbeddingGradPiecesWorkspace(dense, 90));
  w[0].storage = DType::kF32;
  w[0].storage.sparsity = Sparsity{.kept = 10, .block = {2, 1}, .member = 0};
  EXPECT_EQ(grad.Flops(grads, w), 90 * 6 + 20);
  kernels::EmbeddingShape sparse = dense;
  sparse.blocks = {2, 1};
  EXPECT_EQ(grad.Scratch(grads, w),
            kernels::EmbeddingGradWorkspace(sparse, 90));
  std::vector<ValueSpec> with = inputs;
  with[1].storage.sparsity = w[0].storage.sparsity;
  EXPECT_EQ(Embedding(1.0f, true).Scratch(with, y),
            kernels::EmbeddingWorkspace(sparse));
}

}  // namespace
}  // namespace thimble::ops
