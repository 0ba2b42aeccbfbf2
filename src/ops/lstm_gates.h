// SPDX-License-Identifier: Apache-2.0
//
// lstm-gates: x [N, I], w_x [4H, I], bias [4H] and, after a first step, h [N,
// H] of the step before and w_h [4H, H] -> z [N, 4H] = x w_xᵀ + h w_hᵀ + bias,
// f32: the input gate, the forget gate, the candidate and the output gate of an
// LSTM before their nonlinearities (lstm-cell). Backward reads x, h and the
// weights.
//
// All steps of a layer read the same weights. Their gradients are added up in
// one buffer: each step's is made on top of the sum of the later steps'.
#pragma once

#include "graph/attributes.h"
#include "graph/op.h"

namespace thimble::ops {

// x, w_x, bias[, h, w_h] -> z
class LstmGates final : public OpDef {
 public:
  enum Input : uint32_t { kX, kWX, kBias, kH, kWH };

  explicit LstmGates(bool recurrent) : recurrent_(recurrent) {}

  std::string_view name() const override { return "lstm-gates"; }
  std::string Attributes() const override {
    return ListAttributes("recurrent", recurrent_);
  }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  void Run(const BoundOp& c, const RunContext& run) const override;
  BackwardNeeds Needs() const override {
    // x, w_x; h, w_h
    return {.inputs = recurrent_ ? 0b11011u : 0b00011u};
  }
  void Gradient(GradientContext& context) const override;
  int64_t Flops(std::span<const ValueSpec> inputs,
                std::span<const ValueSpec> outputs) const override;
  Workspace Scratch(std::span<const ValueSpec> inputs,
                    std::span<const ValueSpec> outputs) const override;

  bool recurrent() const { return recurrent_; }

 private:
  bool recurrent_;
};

// x, grad_z[, h][, sums so far] -> grad_w_x, grad_bias[, grad_w_h]. The sums so
// far are like the outputs, which are in place on them.
class LstmGatesGradWeight final : public OpDef {
 public:
  enum Input : uint32_t { kX, kGradZ, kH };

  LstmGatesGradWeight(bool recurrent, bool accumulate)
      : recurrent_(recurrent), accumulate_(accumulate) {}

  std::string_view name() const override { return "lstm-gates-grad-weight"; }
  std::string Attributes() const override {
    return ListAttributes("recurrent", recurrent_, "on sums so far",
                          accumulate_);
  }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  void Run(const BoundOp& c, const RunContext& run) const override;
  std::vector<InPlacePair> InPlace() const override;
  int64_t Flops(std::span<const ValueSpec> inputs,
                std::span<const ValueSpec> outputs) const override;
  Workspace Scratch(std::span<const ValueSpec> inputs,
                    std::span<const ValueSpec> outputs) const override;

  bool recurrent() const { return recurrent_; }
  bool accumulate() const { return accumulate_; }
  // Index of the first sum so far among the inputs.
  uint32_t first_sum() const { return recurrent_ ? 3 : 2; }

 private:
  bool recurrent_;
  bool accumulate_;
};

}  // namespace thimble::ops
