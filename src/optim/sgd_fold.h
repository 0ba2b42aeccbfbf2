// SPDX-License-Identifier: Apache-2.0
//
// SGD without gradients of weights:
//
// sgd-fold: an op that makes a weight's gradient, whose sums go into the
// velocity as they are made, or, where it is told to, into velocity and
// parameter at once (kernels::SgdFold). Several gradients of one op are folded
// by one such op around another.
//
// sgd-apply: parameter, velocity, changed where they lie: what is left to do in
// the update phase.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "graph/attributes.h"
#include "graph/op.h"
#include "kernels/update/update.h"
#include "thimble/optimizer.h"

namespace thimble::optim {

// A step's numbers, as a run has them. `stream` is that of the parameter.
kernels::SgdStep SgdStepOf(const SgdOptions& options, const RunContext& run,
                           uint32_t stream);

class SgdFoldGrad final : public OpDef {
 public:
  // `whole`: the whole step is made, not the velocity alone.
  SgdFoldGrad(const SgdOptions& options, const Optimizer::FoldPart& part,
              bool whole);

  std::string_view name() const override { return "sgd-fold"; }
  std::string Attributes() const override;
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  void Run(const BoundOp& op, const RunContext& run) const override;
  std::vector<InPlacePair> InPlace() const override;
  uint32_t Accumulates() const override;
  uint32_t Mutates() const override;
  int64_t Flops(std::span<const ValueSpec> inputs,
                std::span<const ValueSpec> outputs) const override;
  int64_t RecomputeFlops(std::span<const ValueSpec> inputs,
                         std::span<const ValueSpec> outputs) const override;
  Workspace Scratch(std::span<const ValueSpec> inputs,
                    std::span<const ValueSpec> outputs) const override;

 private:
  // What the maker would get: its gradient is there, as one in pieces, and the
  // sum so far is like it.
  std::vector<ValueSpec> MakerInputs(std::span<const ValueSpec> inputs) const;
  std::vector<ValueSpec> MakerOutputs(std::span<const ValueSpec> inputs,
                                      std::span<const ValueSpec> outputs) const;
  // The parameter and its state: the first inputs.
  uint32_t Own() const { return options_.momentum == 0.0f ? 1 : 2; }

  SgdOptions options_;
  Optimizer::FoldPart part_;
  bool whole_;
  // The maker's input that its gradient would be added to.
  std::optional<uint32_t> sum_;
};

class SgdApply final : public OpDef {
 public:
  enum Input : uint32_t { kParameter, kVelocity };

  SgdApply(const SgdOptions& options, uint32_t position)
      : options_(options), position_(position) {}

  std::string_view name() const override { return "sgd-apply"; }
  std::string Attributes() const override {
    return ListAttributes("momentum", options_.momentum, "rounding",
                          options_.rounding, "position", int64_t{position_});
  }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  void Run(const BoundOp& op, const RunContext& run) const override;
  uint32_t Mutates() const override { return 0b11; }
  int64_t Flops(std::span<const ValueSpec> inputs,
                std::span<const ValueSpec> outputs) const override {
    return 2 * OpDef::Flops(inputs, outputs);
  }

 private:
  SgdOptions options_;
  uint32_t position_;
};

}  // namespace thimble::optim
