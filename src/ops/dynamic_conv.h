// SPDX-License-Identifier: Apache-2.0
//
// dynamic-conv: u [T, C], logits [T, H·K], ends [n] i32 -> y [T, C]: each token
// takes the tokens around it in its sentence by K taps of its own, which a
// head's C/H features share (kernels/dynamic_conv). Taps are the softmax of
// their logits; in training dropout sets a share of them to 0. f32, nothing in
// place. Backward reads u, logits and ends, and makes and drops the taps again:
// a mask is a function of seed, step, the token's position in the step,
// `stream` and the tap.
#pragma once

#include "graph/attributes.h"
#include "graph/op.h"
#include "kernels/dynamic_conv/dynamic_conv.h"

namespace thimble::ops {

// All that the three ops have in common.
struct DynamicConvSettings {
  int64_t heads = 1;
  int64_t kernel = 3;
  bool causal = false;
  float dropout = 0.0f;
  // Tells the random ops of a network apart.
  uint32_t stream = 0;

  std::string Text() const {
    return ListAttributes("heads", heads, "kernel", kernel, "causal", causal,
                          "dropout", dropout, "stream", int64_t{stream});
  }
};

class DynamicConv final : public OpDef {
 public:
  enum Input : uint32_t { kU, kLogits, kEnds };

  explicit DynamicConv(const DynamicConvSettings& settings)
      : settings_(settings) {}

  const DynamicConvSettings& settings() const { return settings_; }

  std::string_view name() const override { return "dynamic-conv"; }
  std::string Attributes() const override { return settings_.Text(); }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  void Run(const BoundOp& c, const RunContext& run) const override;
  ForwardResult Forward(ForwardContext& context) const override;
  BackwardNeeds Needs() const override { return {.inputs = 0b111}; }
  void Gradient(GradientContext& context) const override;
  int64_t Flops(std::span<const ValueSpec> inputs,
                std::span<const ValueSpec> outputs) const override;
  Workspace Scratch(std::span<const ValueSpec> inputs,
                    std::span<const ValueSpec> outputs) const override;

 private:
  DynamicConvSettings settings_;
};

// logits, grad_y [T, C], ends -> grad_u [T, C]
class DynamicConvGradInput final : public OpDef {
 public:
  enum Input : uint32_t { kLogits, kGradY, kEnds };

  explicit DynamicConvGradInput(const DynamicConvSettings& settings)
      : settings_(settings) {}

  std::string_view name() const override { return "dynamic-conv-grad-input"; }
  std::string Attributes() const override { return settings_.Text(); }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  void Run(const BoundOp& c, const RunContext& run) const override;
  int64_t Flops(std::span<const ValueSpec> inputs,
                std::span<const ValueSpec> outputs) const override;
  int64_t RecomputeFlops(std::span<const ValueSpec> inputs,
                         std::span<const ValueSpec> outputs) const override;
  Workspace Scratch(std::span<const ValueSpec> inputs,
                    std::span<const ValueSpec> outputs) const override;

 private:
  DynamicConvSettings settings_;
};

// u, logits, grad_y, ends -> grad_logits [T, H·K]. In place on the logits.
class DynamicConvGradLogits final : public OpDef {
 public:
  enum Input : uint32_t { kU, kLogits, kGradY, kEnds };

  explicit DynamicConvGradLogits(const DynamicConvSettings& settings)
      : settings_(settings) {}

  std::string_view name() const override { return "dynamic-conv-grad-logits"; }
  std::string Attributes() const override { return settings_.Text(); }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  void Run(const BoundOp& c, const RunContext& run) const override;
  std::vector<InPlacePair> InPlace() const override { return {{kLogits, 0}}; }
  int64_t Flops(std::span<const ValueSpec> inputs,
                std::span<const ValueSpec> outputs) const override;
  int64_t RecomputeFlops(std::span<const ValueSpec> inputs,
                         std::span<const ValueSpec> outputs) const override;
  Workspace Scratch(std::span<const ValueSpec> inputs,
                    std::span<const ValueSpec> outputs) const override;

 private:
  DynamicConvSettings settings_;
};

}  // namespace thimble::ops
