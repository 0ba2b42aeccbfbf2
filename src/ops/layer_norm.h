// SPDX-License-Identifier: Apache-2.0
//
// layer-norm: x [N, C], gamma, beta [C] -> y, each row normalised by its own
// mean and variance, in place on x. f32, f16 or bf16, all alike; gamma and beta
// f32. Backward reads x and gamma and makes the statistics anew.
#pragma once

#include "graph/attributes.h"
#include "graph/op.h"

namespace thimble::ops {

// x, gamma, beta -> y
class LayerNorm final : public OpDef {
 public:
  enum Input : uint32_t { kX, kGamma, kBeta };

  explicit LayerNorm(float epsilon) : epsilon_(epsilon) {}

  std::string_view name() const override { return "layer-norm"; }
  std::string Attributes() const override {
    return ListAttributes("epsilon", epsilon_);
  }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  void Run(const BoundOp& c, const RunContext& run) const override;
  BackwardNeeds Needs() const override { return {.inputs = 0b11}; }
  void Gradient(GradientContext& context) const override;
  std::vector<InPlacePair> InPlace() const override { return {{kX, 0}}; }
  // A sum; a difference, its square and a sum; a difference, a product and a
  // multiply-add.
  int64_t Flops(std::span<const ValueSpec> inputs,
                std::span<const ValueSpec> outputs) const override {
    return 8 * OpDef::Flops(inputs, outputs);
  }

  float epsilon() const { return epsilon_; }

 private:
  float epsilon_;
};

// x, gamma, grad_y -> grad_gamma, grad_beta[, grad_x]
class LayerNormGrad final : public OpDef {
 public:
  enum Input : uint32_t { kX, kGamma, kGradY };

  LayerNormGrad(float epsilon, bool with_grad_x)
      : epsilon_(epsilon), with_grad_x_(with_grad_x) {}

  std::string_view name() const override { return "layer-norm-grad"; }
  std::string Attributes() const override {
    return ListAttributes("epsilon", epsilon_, "with grad_x", with_grad_x_);
  }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  void Run(const BoundOp& c, const RunContext& run) const override;
  uint32_t Accumulates() const override { return 0b11; }
  std::vector<InPlacePair> InPlace() const override {
    if (!with_grad_x_) return {};
    return {{kGradY, 2}, {kX, 2}};
  }
  // The statistics, and what is normalised, are made with 6; the parameters'
  // sums with 3; g twice, the means of g and g x̂, and grad_x, with 9.
  int64_t Flops(std::span<const ValueSpec> inputs,
                std::span<const ValueSpec> outputs) const override {
    return (with_grad_x_ ? 18 : 9) * OpDef::Flops(inputs, outputs);
  }
  Workspace Scratch(std::span<const ValueSpec> inputs,
                    std::span<const ValueSpec> outputs) const override;

 private:
  float epsilon_;
  bool with_grad_x_;
};

}  // namespace thimble::ops
