// SPDX-License-Identifier: Apache-2.0
//
// Ops of the update phase. They change state where it lies and have no outputs.
#pragma once

#include "graph/op.h"

namespace thimble::ops {

struct SgdAttributes {
  float momentum = 0.9f;
  float weight_decay = 0.0f;
  bool nesterov = false;
};

// param, grad[, velocity]: see kernels/update/update.h. The learning rate is
// the run's, not the op's.
class SgdUpdate final : public OpDef {
 public:
  enum Input : uint32_t { kParameter, kGradient, kVelocity };

  explicit SgdUpdate(const SgdAttributes& attributes)
      : attributes_(attributes) {}

  std::string_view name() const override { return "sgd-update"; }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  void Run(const BoundOp& c, const RunContext& run) const override;
  uint32_t Mutates() const override { return 0b101; }
  int64_t Flops(std::span<const ValueSpec> inputs,
                std::span<const ValueSpec> outputs) const override {
    return 6 * OpDef::Flops(inputs, outputs);
  }

  const SgdAttributes& attributes() const { return attributes_; }

 private:
  SgdAttributes attributes_;
};

// state, next: copies next over state.
class Commit final : public OpDef {
 public:
  enum Input : uint32_t { kState, kNext };

  std::string_view name() const override { return "commit"; }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  void Run(const BoundOp& c, const RunContext& run) const override;
  uint32_t Mutates() const override { return 0b1; }
  int64_t Flops(std::span<const ValueSpec>,
                std::span<const ValueSpec>) const override {
    return 0;
  }
};

}  // namespace thimble::ops
