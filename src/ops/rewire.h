// SPDX-License-Identifier: Apache-2.0
//
// rewire: index, weights, state… of a pool of sparse weights, changed where
// they lie (kernels/rewire/rewire.h). An op of the update phase, behind all
// updates. It does nothing in a run that does not ask for it
// (RunContext::rewire). Weights are f32, f16 or bf16, state may also be in
// blocks of bytes.
#pragma once

#include <utility>

#include "graph/attributes.h"
#include "graph/op.h"
#include "thimble/sparsity.h"

namespace thimble::ops {

class Rewire final : public OpDef {
 public:
  enum Input : uint32_t { kIndex, kWeights, kState };

  explicit Rewire(PoolLayout layout) : layout_(std::move(layout)) {}

  std::string_view name() const override { return "rewire"; }
  std::string Attributes() const override {
    return ListAttributes("layout", layout_);
  }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  void Run(const BoundOp& c, const RunContext& run) const override;
  // All of them.
  uint32_t Mutates() const override { return UINT32_MAX; }
  // Not a part of a step's work: it is rare.
  int64_t Flops(std::span<const ValueSpec>,
                std::span<const ValueSpec>) const override {
    return 0;
  }
  Workspace Scratch(std::span<const ValueSpec> inputs,
                    std::span<const ValueSpec> outputs) const override;

 private:
  PoolLayout layout_;
};

}  // namespace thimble::ops
