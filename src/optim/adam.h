// SPDX-License-Identifier: Apache-2.0
//
// adam-update: parameter, gradient, first moment, second moment[, the scale of
// each], changed where they lie; see kernels/update/update.h for the formula.
// f32, f16 and bf16, all but the parameter in 8-bit blocks too, both moments
// alike; moments in f16 have scales. The learning rate and the step's number
// are the run's, not the op's.
#pragma once

#include "graph/attributes.h"
#include "graph/op.h"
#include "thimble/optimizer.h"

namespace thimble::optim {

class AdamUpdate final : public OpDef {
 public:
  enum Input : uint32_t {
    kParameter,
    kGradient,
    kFirst,
    kSecond,
    kFirstScale,
    kSecondScale
  };

  // `position` as Optimizer::UpdateOp says.
  AdamUpdate(const AdamOptions& options, uint32_t position)
      : options_(options), position_(position) {}

  std::string_view name() const override { return "adam-update"; }
  std::string Attributes() const override {
    return ListAttributes("beta1", options_.beta1, "beta2", options_.beta2,
                          "epsilon", options_.epsilon, "weight decay",
                          options_.weight_decay, "decoupled",
                          options_.decoupled, "rounding", options_.rounding,
                          "position", int64_t{position_});
  }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  void Run(const BoundOp& op, const RunContext& run) const override;
  uint32_t Mutates() const override { return 0b111101; }
  int64_t Flops(std::span<const ValueSpec> inputs,
                std::span<const ValueSpec> outputs) const override {
    return 14 * OpDef::Flops(inputs, outputs);
  }

 private:
  AdamOptions options_;
  uint32_t position_;
};

}  // namespace thimble::optim
