// SPDX-License-Identifier: Apache-2.0
//
// bias: x [N, C, …], bias [C] -> y = x + bias, f32, in place on x. Backward
// needs nothing of the forward pass: grad_x is grad_y itself.
#pragma once

#include "graph/op.h"

namespace thimble::ops {

class Bias final : public OpDef {
 public:
  enum Input : uint32_t { kX, kBias };

  std::string_view name() const override { return "bias"; }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  void Run(const BoundOp& c, const RunContext& run) const override;
  void Gradient(GradientContext& context) const override;
  std::vector<InPlacePair> InPlace() const override { return {{kX, 0}}; }
};

// grad_y [N, C, …] -> grad_bias [C]
class BiasGrad final : public OpDef {
 public:
  std::string_view name() const override { return "bias-grad"; }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  void Run(const BoundOp& c, const RunContext& run) const override;
  uint32_t Accumulates() const override { return 0b1; }
};

}  // namespace thimble::ops
