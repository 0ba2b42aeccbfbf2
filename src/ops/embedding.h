// SPDX-License-Identifier: Apache-2.0
//
// embedding: tokens [N] i32, w [V, C][, ends [S] i32] -> y [N, C], the tokens'
// rows of w times a scale. With the ends of the tokens' sentences, the sinusoid
// of each row's position in its sentence is added
// (kernels/embedding/embedding.h). f32, f16 or bf16; w may be sparse. Backward
// reads the tokens alone.
#pragma once

#include "graph/attributes.h"
#include "graph/op.h"

namespace thimble::ops {

class Embedding final : public OpDef {
 public:
  enum Input : uint32_t { kTokens, kW, kEnds };

  Embedding(float scale, bool with_positions)
      : scale_(scale), with_positions_(with_positions) {}

  std::string_view name() const override { return "embedding"; }
  std::string Attributes() const override {
    return ListAttributes("scale", scale_, "with positions", with_positions_);
  }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  void Run(const BoundOp& c, const RunContext& run) const override;
  BackwardNeeds Needs() const override { return {.inputs = 1u << kTokens}; }
  uint32_t TakesSparse() const override { return 1u << kW; }
  void Gradient(GradientContext& context) const override;
  // A product; with positions a multiply-add, and for a sine or cosine 11: two
  // for its angle, and multiply-adds of its series.
  int64_t Flops(std::span<const ValueSpec>,
                std::span<const ValueSpec> outputs) const override {
    return (with_positions_ ? 13 : 1) * outputs[0].shape.elements();
  }
  Workspace Scratch(std::span<const ValueSpec> inputs,
                    std::span<const ValueSpec> outputs) const override;

  float scale() const { return scale_; }
  bool with_positions() const { return with_positions_; }

 private:
  float scale_;
  bool with_positions_;
};

// tokens [N], grad_y [N, C] -> grad_w [V, C]
class EmbeddingGrad final : public OpDef {
 public:
  enum Input : uint32_t { kTokens, kGradY };

  // `w`: how the weight is stored; its gradient is as sparse.
  EmbeddingGrad(float scale, int64_t vocabulary, const Storage& w)
      : scale_(scale), vocabulary_(vocabulary), w_(w) {}

  std::string_view name() const override { return "embedding-grad"; }
  std::string Attributes() const override {
    return ListAttributes("scale", scale_, "vocabulary", vocabulary_, "w", w_);
  }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  void Run(const BoundOp& c, const RunContext& run) const override;
  uint32_t Accumulates() const override { return 0b1; }
  // A sum of rows, and a product for each value that can be of one.
  int64_t Flops(std::span<const ValueSpec> inputs,
                std::span<const ValueSpec> outputs) const override;
  Workspace Scratch(std::span<const ValueSpec> inputs,
                    std::span<const ValueSpec> outputs) const override;

 private:
  float scale_;
  int64_t vocabulary_;
  Storage w_;
};

}  // namespace thimble::ops
