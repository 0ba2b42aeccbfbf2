// SPDX-License-Identifier: Apache-2.0
//
// relu: y = max(x, 0), any f32 shape, in place. Backward needs one bit per
// element: it is read off the output where that is kept for another op anyway,
// and else comes from a packed mask that the training form writes.
#pragma once

#include "graph/op.h"

namespace thimble::ops {

class Relu final : public OpDef {
 public:
  std::string_view name() const override { return "relu"; }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  void Run(const BoundOp& c, const RunContext& run) const override;
  ForwardResult Forward(ForwardContext& context) const override;
  BackwardNeeds Needs() const override { return {.output_bits = true}; }
  void Gradient(GradientContext& context) const override;
  std::vector<InPlacePair> InPlace() const override { return {{0, 0}}; }
};

// x -> y, mask (one bit per element)
class ReluWithMask final : public OpDef {
 public:
  std::string_view name() const override { return "relu-with-mask"; }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  void Run(const BoundOp& c, const RunContext& run) const override;
  std::vector<InPlacePair> InPlace() const override { return {{0, 0}}; }
};

// y, grad_y -> grad_x
class ReluGradFromOutput final : public OpDef {
 public:
  enum Input : uint32_t { kY, kGradY };

  std::string_view name() const override { return "relu-grad"; }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  void Run(const BoundOp& c, const RunContext& run) const override;
  std::vector<InPlacePair> InPlace() const override {
    return {{kGradY, 0}, {kY, 0}};
  }
};

// mask, grad_y -> grad_x
class ReluGradFromMask final : public OpDef {
 public:
  enum Input : uint32_t { kMask, kGradY };

  std::string_view name() const override { return "relu-grad-from-mask"; }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  void Run(const BoundOp& c, const RunContext& run) const override;
  std::vector<InPlacePair> InPlace() const override { return {{kGradY, 0}}; }
};

}  // namespace thimble::ops
