// SPDX-License-Identifier: Apache-2.0
#include "optim/adam.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/rng.h"
#include "kernels/update/update.h"
#include "ops/bound_op.h"
#include "ops/storage.h"
#include "optim/state.h"

namespace thimble {
namespace optim {
namespace {

// bf16 has the range of f32, and its moments need no scale.
bool NeedsScale(const Storage& storage) { return storage.dtype == DType::kF16; }

Status CheckShare(const char* name, double share) {
  if (share >= 0.0 && share < 1.0) return Status::Ok();
  return Status::Usage(
      fmt::format("{} must be in [0, 1), got {}", name, share));
}

class AdamOptimizer final : public Optimizer {
 public:
  explicit AdamOptimizer(const AdamOptions& options) : options_(options) {}

  std::string_view name() const override {
    return options_.decoupled ? "adamw" : "adam";
  }

  Status Check() const override {
    TH_RETURN_IF_ERROR(CheckShare("beta1", options_.beta1));
    TH_RETURN_IF_ERROR(CheckShare("beta2", options_.beta2));
    // Once it is 0 in f32, nothing keeps a step from dividing by 0.
    if (!(static_cast<float>(options_.epsilon) > 0.0f) ||
        !std::isfinite(options_.epsilon)) {
      return Status::Usage(
          fmt::format("epsilon must be above 0, got {}", options_.epsilon));
    }
    if (!(options_.weight_decay >= 0.0) ||
        !std::isfinite(options_.weight_decay)) {
      return Status::Usage(fmt::format("weight decay must be >= 0, got {}",
                                       options_.weight_decay));
    }
    if (options_.rounding == Rounding::kFeedback) {
      return Status::Usage(
          "rounding by feedback is for SGD with momentum; Adam divides what is "
          "handed on to it, so use stochastic or nearest rounding");
    }
    return CheckState(options_.state);
  }

  std::vector<State> StateOf(const ValueSpec& parameter) const override {
    ValueSpec moment = parameter;
    moment.storage = StateStorage(parameter, options_.state);
    if (!NeedsScale(moment.storage)) {
      return {{"first_moment", moment, {}}, {"second_moment", moment, {}}};
    }
    const ValueSpec scale{{1}, DType::kF32};
    return {{"first_moment", moment, {}},
            {"second_moment", moment, {}},
            {"first_moment_scale", scale, {}},
            {"second_moment_scale", scale, {}}};
  }

  std::shared_ptr<const OpDef> UpdateOp(uint32_t position) const override {
    return std::make_shared<AdamUpdate>(options_, position);
  }

  std::map<std::string, std::string> Settings() const override {
    std::map<std::string, std::string> settings = {
        {"beta1", fmt::format("{}", options_.beta1)},
        {"beta2", fmt::format("{}", options_.beta2)},
        {"epsilon", fmt::format("{}", options_.epsilon)},
        {"weight decay", fmt::format("{}", options_.weight_decay)},
        {"decoupled", options_.decoupled ? "yes" : "no"}};
    AddSettings(options_.rounding, options_.state, settings);
    return settings;
  }

 private:
  AdamOptions options_;
};

}  // namespace

Result<std::vector<ValueSpec>> AdamUpdate::Infer(
    std::span<const ValueSpec> inputs) const {
  static constexpr std::string_view kNames[] = {
      "parameter", "gradient", "first moment", "second moment"};
  TH_RETURN_IF_ERROR(CheckUpdateInputs(
      inputs.first(std::min<size_t>(inputs.size(), kFirstScale)), kNames));
  const ValueSpec& first = inputs[kFirst];
  TH_RETURN_IF_ERROR(
      ops::CheckStored("second moment", inputs[kSecond], first.storage));
  const size_t scales = NeedsScale(first.storage) ? 2 : 0;
  if (inputs.size() != kFirstScale + scales) {
    return Status::Usage(fmt::format(
        "moments stored as {} have {} scales, got {}", first.storage.ToString(),
        scales, inputs.size() - kFirstScale));
  }
  for (const ValueSpec& scale : inputs.subspan(kFirstScale)) {
    TH_RETURN_IF_ERROR(
        ops::CheckStored("a moment's scale", scale, DType::kF32));
    if (scale.shape.elements() == 1) continue;
    return Status::Usage(fmt::format("a moment's scale is one number, got {}",
                                     scale.shape.ToString()));
  }
  return std::vector<ValueSpec>{};
}

void AdamUpdate::Run(const BoundOp& op, const RunContext& run) const {
  const auto scale = [&op](Input i) {
    return op.inputs.size() > i ? op.Mutable(i).f32() : nullptr;
  };
  kernels::AdamUpdate(op.inputs[kParameter].elements(),
                      {.learning_rate = run.learning_rate,
                       .beta1 = options_.beta1,
                       .beta2 = options_.beta2,
                       .epsilon = options_.epsilon,
                       .weight_decay = options_.weight_decay,
                       .decoupled = options_.decoupled,
                       .number = run.update,
                       .gradient_scale = run.gradient_scale,
                       .rounding = options_.rounding,
                       .random = {run.seed, run.step, UpdateStream(position_)}},
                      op.MutableValues(kParameter), op.Values(kGradient),
                      {op.MutableValues(kFirst), op.MutableValues(kSecond),
                       scale(kFirstScale), scale(kSecondScale)},
                      op.kernel);
}

}  // namespace optim

std::shared_ptr<const Optimizer> Adam(const AdamOptions& options) {
  return std::make_shared<optim::AdamOptimizer>(options);
}

}  // namespace thimble
