// SPDX-License-Identifier: Apache-2.0
#include "optim/sgd.h"

#include <fmt/format.h>

#include <cmath>

#include "base/check.h"
#include "base/rng.h"
#include "kernels/update/update.h"
#include "ops/bound_op.h"
#include "optim/sgd_fold.h"
#include "optim/state.h"

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
    if (options_.rounding == Rounding::kFeedback && options_.momentum == 0.0f) {
      return Status::Usage(
          "rounding by feedback needs a momentum above 0, which rounding "
          "errors "
          "are handed on to; use stochastic rounding without momentum");
    }
    return CheckState(options_.state);
  }

  std::vector<State> StateOf(const ValueSpec& parameter) const override {
    if (options_.momentum == 0.0f) return {};
    ValueSpec velocity = parameter;
    velocity.storage = StateStorage(parameter, options_.state);
    return {{"velocity", velocity, {}}};
  }

  std::shared_ptr<const OpDef> UpdateOp(uint32_t position) const override {
    return std::make_shared<SgdUpdate>(options_, position);
  }

  // A velocity holds the sum of a step's gradients by itself. Nesterov's step
  // needs them apart from it, and so all at once, as does a step without
  // velocity.
  Status CheckFold(bool in_one_part) const override {
    if (in_one_part || !FoldsWhole()) return Status::Ok();
    return NeedsGradients(
        options_.nesterov
            ? "Nesterov's step needs a weight's gradient at once, and here it "
              "comes in several parts (microbatches, ghost batches or time "
              "steps)"
            : "there must be a momentum to add the parts of a weight's "
              "gradient to (microbatches, ghost batches or time steps)",
        options_.nesterov
            ? "use plain momentum (SgdOptions::nesterov = false), or one "
              "microbatch per step"
            : "use SgdOptions::momentum > 0, or one microbatch per step");
  }

  std::shared_ptr<const OpDef> FoldOp(const FoldPart& part) const override {
    return std::make_shared<SgdFoldGrad>(options_, part, FoldsWhole());
  }

  std::shared_ptr<const OpDef> ApplyOp(uint32_t position) const override {
    if (FoldsWhole()) return nullptr;
    return std::make_shared<SgdApply>(options_, position);
  }

  std::map<std::string, std::string> Settings() const override {
    std::map<std::string, std::string> settings = {
        {"momentum", fmt::format("{}", options_.momentum)},
        {"weight decay", fmt::format("{}", options_.weight_decay)},
        {"nesterov", options_.nesterov ? "yes" : "no"}};
    AddSettings(options_.rounding, options_.state, settings);
    return settings;
  }

 private:
  bool FoldsWhole() const {
    return options_.nesterov || options_.momentum == 0.0f;
  }

  SgdOptions options_;
};

}  // namespace

kernels::SgdStep SgdStepOf(const SgdOptions& options, const RunContext& run,
                           uint32_t stream) {
  return {.learning_rate = run.learning_rate,
          .momentum = options.momentum,
          .weight_decay = options.weight_decay,
          .nesterov = options.nesterov,
          .gradient_scale = run.gradient_scale,
          .next_learning_rate = run.next_learning_rate,
          .rounding = options.rounding,
          .random = {run.seed, run.step, stream}};
}

Result<std::vector<ValueSpec>> SgdUpdate::Infer(
    std::span<const ValueSpec> inputs) const {
  static constexpr std::string_view kNames[] = {"parameter", "gradient",
                                                "velocity"};
  TH_RETURN_IF_ERROR(CheckUpdateInputs(inputs, kNames));
  return std::vector<ValueSpec>{};
}

void SgdUpdate::Run(const BoundOp& op, const RunContext& run) const {
  const kernels::Tensor velocity = op.inputs.size() > kVelocity
                                       ? op.MutableValues(kVelocity)
                                       : kernels::Tensor::None();
  kernels::SgdUpdate(op.inputs[kParameter].elements(),
                     SgdStepOf(options_, run, UpdateStream(position_)),
                     op.MutableValues(kParameter), op.Values(kGradient),
                     velocity, op.kernel);
}

}  // namespace optim

std::shared_ptr<const Optimizer> Sgd(const SgdOptions& options) {
  return std::make_shared<optim::SgdOptimizer>(options);
}

}  // namespace thimble
