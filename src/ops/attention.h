// SPDX-License-Identifier: Apache-2.0
//
// attention: q [T, C], k and v [S, C], query_ends and key_ends [n] i32 ->
// y [T, C]: each query takes the values of the sentence of keys that has its
// own sentence's number, head by head (kernels/attention). In training dropout
// sets a share of the probabilities to 0. f32; in place on q, where no backward
// reads it. Backward reads all inputs and makes the probabilities and their
// mask again, block by block: no [T, S] tensor is ever made. The mask is a
// function of seed, step, the query's position in the step, `stream`, the head
// and the key's place in its sentence.
//
// How many products it takes depends on the lengths of sentences, which no
// shape tells: FLOPs are counted for sentences of 32 keys, or of all keys where
// there are fewer.
#pragma once

#include "graph/attributes.h"
#include "graph/op.h"
#include "kernels/attention/attention.h"

namespace thimble::ops {

struct AttentionSettings {
  int64_t heads = 1;
  bool causal = false;
  float dropout = 0.0f;
  // Tells the random ops of a network apart.
  uint32_t stream = 0;

  std::string Text() const {
    return ListAttributes("heads", heads, "causal", causal, "dropout", dropout,
                          "stream", int64_t{stream});
  }
};

class Attention final : public OpDef {
 public:
  enum Input : uint32_t { kQ, kK, kV, kQueryEnds, kKeyEnds };

  explicit Attention(const AttentionSettings& settings) : settings_(settings) {}

  const AttentionSettings& settings() const { return settings_; }

  std::string_view name() const override { return "attention"; }
  std::string Attributes() const override { return settings_.Text(); }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  void Run(const BoundOp& c, const RunContext& run) const override;
  ForwardResult Forward(ForwardContext& context) const override;
  BackwardNeeds Needs() const override { return {.inputs = 0b11111}; }
  void Gradient(GradientContext& context) const override;
  std::vector<InPlacePair> InPlace() const override { return {{kQ, 0}}; }
  int64_t Flops(std::span<const ValueSpec> inputs,
                std::span<const ValueSpec> outputs) const override;
  Workspace Scratch(std::span<const ValueSpec> inputs,
                    std::span<const ValueSpec> outputs) const override;

 private:
  AttentionSettings settings_;
};

// q, k, v, query_ends, key_ends, grad_y [T, C] -> grad_q, grad_k, grad_v. In
// place: grad_k on k, grad_v on v.
class AttentionGrad final : public OpDef {
 public:
  // As Attention's, and then:
  enum Input : uint32_t { kGradY = Attention::kKeyEnds + 1 };

  explicit AttentionGrad(const AttentionSettings& settings)
      : settings_(settings) {}

  std::string_view name() const override { return "attention-grad"; }
  std::string Attributes() const override { return settings_.Text(); }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  void Run(const BoundOp& c, const RunContext& run) const override;
  std::vector<InPlacePair> InPlace() const override {
    return {{Attention::kK, 1}, {Attention::kV, 2}};
  }
  int64_t Flops(std::span<const ValueSpec> inputs,
                std::span<const ValueSpec> outputs) const override;
  int64_t RecomputeFlops(std::span<const ValueSpec> inputs,
                         std::span<const ValueSpec> outputs) const override;
  Workspace Scratch(std::span<const ValueSpec> inputs,
                    std::span<const ValueSpec> outputs) const override;

 private:
  AttentionSettings settings_;
};

}  // namespace thimble::ops
