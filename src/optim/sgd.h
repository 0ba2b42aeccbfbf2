// SPDX-License-Identifier: Apache-2.0
//
// sgd-update: parameter, gradient[, velocity], changed where they lie; see
// kernels/update/update.h for the formula. The learning rate is the run's, not
// the op's.
#pragma once

#include "graph/attributes.h"
#include "graph/op.h"
#include "thimble/optimizer.h"

namespace thimble::optim {

class SgdUpdate final : public OpDef {
 public:
  enum Input : uint32_t { kParameter, kGradient, kVelocity };

  explicit SgdUpdate(const SgdOptions& options) : options_(options) {}

  std::string_view name() const override { return "sgd-update"; }
  std::string Attributes() const override {
    return ListAttributes("momentum", options_.momentum, "weight decay",
                          options_.weight_decay, "nesterov", options_.nesterov);
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
};

}  // namespace thimble::optim
