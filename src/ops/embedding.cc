// SPDX-License-Identifier: Apache-2.0
#include "ops/embedding.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "kernels/embedding/embedding.h"
#include "kernels/sentences.h"
#include "ops/bound_op.h"
#include "ops/gradient_out.h"
#include "ops/storage.h"

namespace thimble::ops {
namespace {

kernels::EmbeddingShape ShapeOf(const ValueSpec& w) {
  return {.vocabulary = w.shape[0],
          .features = w.shape[1],
          .blocks = BlocksOf(w.storage)};
}

}  // namespace

Result<std::vector<ValueSpec>> Embedding::Infer(
    std::span<const ValueSpec> inputs) const {
  const ValueSpec& tokens = inputs[kTokens];
  ValueSpec w = inputs[kW];
  w.storage.sparsity.reset();
  TH_RETURN_IF_ERROR(CheckStored("tokens", tokens, DType::kI32));
  TH_RETURN_IF_ERROR(CheckFloat("w", w));
  if (tokens.shape.rank() != 1 || w.shape.rank() != 2) {
    return Status::Usage(
        fmt::format("needs tokens [N] and weights [V, C], got {} and {}",
                    tokens.shape.ToString(), w.shape.ToString()));
  }
  if (with_positions_) {
    const ValueSpec& ends = inputs[kEnds];
    TH_RETURN_IF_ERROR(CheckStored("ends", ends, DType::kI32));
    if (ends.shape.rank() != 1) {
      return Status::Usage(fmt::format("needs ends of sentences [S], got {}",
                                       ends.shape.ToString()));
    }
    if (w.shape[1] < 4 || w.shape[1] % 2 != 0) {
      return Status::Usage(
          fmt::format("needs an even number of features, 4 at least, where "
                      "positions are added: a sine and a cosine for each of "
                      "two frequencies or more; got weights {}",
                      w.shape.ToString()));
    }
  }
  return std::vector<ValueSpec>{
      {{tokens.shape[0], w.shape[1]}, DType::kF32, tokens.axis}};
}

void Embedding::Gradient(GradientContext& context) const {
  if (!context.wanted[kW]) return;
  const ValueSpec& w = context.emit.graph().value(context.inputs[kW]).spec;
  context.grad_inputs[kW] = context.emit.Emit(
      context.name + ".grad_w",
      std::make_shared<EmbeddingGrad>(scale_, w.shape[0], w.storage),
      {context.inputs[kTokens], context.grad_outputs[0]}, Role::kGradient)[0];
}

Workspace Embedding::Scratch(std::span<const ValueSpec> inputs,
                             std::span<const ValueSpec>) const {
  return kernels::EmbeddingWorkspace(ShapeOf(inputs[kW]));
}

Result<std::vector<ValueSpec>> EmbeddingGrad::Infer(
    std::span<const ValueSpec> inputs) const {
  TH_RETURN_IF_ERROR(CheckStored("tokens", inputs[kTokens], DType::kI32));
  TH_RETURN_IF_ERROR(CheckFloat("grad_y", inputs[kGradY]));
  ValueSpec w = {{vocabulary_, inputs[kGradY].shape[1]}, DType::kF32};
  w.storage.sparsity = w_.sparsity;
  return std::vector<ValueSpec>{w};
}

int64_t EmbeddingGrad::Flops(std::span<const ValueSpec> inputs,
                             std::span<const ValueSpec> outputs) const {
  const int64_t sums = inputs[kGradY].shape.elements();
  return sums + std::min(sums, outputs[0].kept());
}

Workspace EmbeddingGrad::Scratch(std::span<const ValueSpec> inputs,
                                 std::span<const ValueSpec> outputs) const {
  const kernels::EmbeddingShape shape = ShapeOf(outputs[0]);
  const int64_t rows = inputs[kTokens].shape[0];
  return InPieces(outputs[0])
             ? kernels::EmbeddingGradPiecesWorkspace(shape, rows)
             : kernels::EmbeddingGradWorkspace(shape, rows);
}

void Embedding::Run(const BoundOp& c, const RunContext& run) const {
  kernels::Sentences sentences;
  if (with_positions_) {
    sentences = {run.Rows(c.in_spec(kEnds)), c.In(kEnds).i32()};
  }
  kernels::Embedding(ShapeOf(c.in_spec(kW)), run.Rows(c.in_spec(kTokens)),
                     scale_, c.In(kTokens).i32(), c.In(kW),
                     with_positions_ ? &sentences : nullptr, c.Out(0),
                     c.kernel);
}

void EmbeddingGrad::Run(const BoundOp& c, const RunContext& run) const {
  const GradientOut grad_w(c, 0, run);
  kernels::EmbeddingGrad(ShapeOf(c.out_spec(0)), run.Rows(c.in_spec(kTokens)),
                         scale_, c.In(kTokens).i32(), c.In(kGradY),
                         grad_w.ForEmbedding(), c.kernel);
}

}  // namespace thimble::ops
