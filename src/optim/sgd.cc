// SPDX-License-Identifier: Apache-2.0
#include "optim/sgd.h"

#include <fmt/format.h>

#include <cmath>

#include "base/check.h"
#include "kernels/update/update.h"
#include "ops/bound_op.h"
#include "ops/storage.h"

namespace thimble {
namespace optim {
namespace {

class SgdOptimizer final : public Optimizer {
 public:
  explicit SgdOptimizer(const SgdOptions& options) : options_(options) {}

  std::string_view name() const override { return "sgd"; }

  Status Check() const override {
    if (!(options_.momentum >= 0.0f && options_.momentum < 1.0f)) {
      return Status::Usage(
          fmt::format("momentum must be in [0, 1), got {}", options_.momentum));
    }
    if (!(options_.weight_decay >= 0.0f) ||
        !std::isfinite(options_.weight_decay)) {
      return Status::Usage(fmt::format("weight decay must be >= 0, got {}",
                                       options_.weight_decay));
    }
    if (options_.nesterov && options_.momentum == 0.0f) {
      return Status::Usage("Nesterov's step needs a momentum above 0");
    }
    return Status::Ok();
  }

  std::vector<State> StateOf(const ValueSpec& parameter) const override {
    if (options_.momentum == 0.0f) return {};
    return {{"velocity", parameter, {}}};
  }

  std::shared_ptr<const OpDef> UpdateOp() const override {
    return std::make_shared<SgdUpdate>(options_);
  }

  std::map<std::string, std::string> Settings() const override {
    return {{"momentum", fmt::format("{}", options_.momentum)},
            {"weight decay", fmt::format("{}", options_.weight_decay)},
            {"nesterov", options_.nesterov ? "yes" : "no"}};
  }

 private:
  SgdOptions options_;
};

}  // namespace

Result<std::vector<ValueSpec>> SgdUpdate::Infer(
    std::span<const ValueSpec> inputs) const {
  TH_RETURN_IF_ERROR(
      ops::CheckFloats(inputs, {"parameter", "gradient", "velocity"}));
  for (const ValueSpec& other : inputs) {
    if (other.shape == inputs[kParameter].shape) continue;
    return Status::Usage(fmt::format("needs values of one shape, got {} and {}",
                                     inputs[kParameter].shape.ToString(),
                                     other.shape.ToString()));
  }
  return std::vector<ValueSpec>{};
}

void SgdUpdate::Run(const BoundOp& op, const RunContext& run) const {
  const kernels::Tensor velocity = op.inputs.size() > kVelocity
                                       ? op.Mutable(kVelocity)
                                       : kernels::Tensor::None();
  kernels::SgdUpdate(op.in_spec(kParameter).shape.elements(),
                     {.learning_rate = run.learning_rate,
                      .momentum = options_.momentum,
                      .weight_decay = options_.weight_decay,
                      .nesterov = options_.nesterov},
                     op.Mutable(kParameter), op.In(kGradient), velocity,
                     op.kernel);
}

}  // namespace optim

std::shared_ptr<const Optimizer> Sgd(const SgdOptions& options) {
  return std::make_shared<optim::SgdOptimizer>(options);
}

}  // namespace thimble
