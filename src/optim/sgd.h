// SPDX-License-Identifier: Apache-2.0
//
// sgd-update: parameter, gradient[, velocity], changed where they lie; see
// kernels/update/update.h for the formula. f32, f16 and bf16, all but the
// parameter in 8-bit blocks too, each as it likes. The learning rate is the
// run's, not the op's.
#pragma once

#include "graph/attributes.h"
#include "graph/op.h"
#include "thimble/optimizer.h"

namespace thimble::optim {

class SgdUpdate final : public OpDef {
 public:
  enum Input : uint32_t { kParameter, kGradient, kVelocity };

  // `position` as Optimizer::UpdateOp says.
  explicit SgdUpdate(const SgdOptions& options, uint32_t position = 0)
      : options_(options), position_(position) {}

  std::string_view name() const override { return "sgd-update"; }
  std::string Attributes() const override {
    return ListAttributes("momentum", options_.momentum, "weight decay",
                          options_.weight_decay, "nesterov", options_.nesterov,
                          "rounding", options_.rounding, "position",
                          int64_t{position_});
  }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  void Run(const BoundOp& op, const RunContext& run) const override;
  uint32_t Mutates() const override { return 0b101; }
  int64_t Flops(std::span<const ValueSpec> inputs,
                std::span<const ValueSpec> outputs) const override {
    return 6 * OpDef::Flops(inputs, outputs);
  }

 private:
  SgdOptions options_;
  uint32_t position_;
};

}  // namespace thimble::optim
