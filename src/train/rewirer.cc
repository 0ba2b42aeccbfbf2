// SPDX-License-Identifier: Apache-2.0
#include "train/rewirer.h"

#include <fmt/format.h>

#include "base/check.h"

namespace thimble::train {
namespace {

// Of the smallest, in sparse evolutionary training's own experiments.
constexpr double kSetFraction = 0.3;

const char* MethodName(RewireMethod method) {
  return method == RewireMethod::kDsr ? "dsr" : "set";
}

}  // namespace

Status Rewirer::Check(const RewiringOptions& options) {
  if (options.every < 0) {
    return Status::Usage(fmt::format(
        "weights cannot be rewired every {} steps (RewiringOptions::every)",
        options.every));
  }
  // Also refuses what is no number.
  if (!(options.prune >= 0.0 && options.prune < 1.0)) {
    return Status::Usage(fmt::format(
        "the share that a rewiring prunes must be from 0 on and below 1, got "
        "{} (RewiringOptions::prune)",
        options.prune));
  }
  const bool is_fixed = !options.method.has_value();
  if (is_fixed && (options.every > 0 || options.prune > 0 ||
                   options.reset != StateReset::kWhole)) {
    return Status::Usage(
        "a fixed pattern is not rewired: leave out RewiringOptions::every, "
        "RewiringOptions::prune and RewiringOptions::reset, or name a method "
        "(RewiringOptions::method)");
  }
  return Status::Ok();
}

Result<Rewirer> Rewirer::Make(const RewiringOptions& options,
                              const Plan& plan) {
  TH_RETURN_IF_ERROR(Check(options));
  Rewirer rewirer;
  if (!plan.sparse().has_value() || !options.method.has_value()) return rewirer;
  const PoolLayout& layout = plan.sparse()->layout;
  rewirer.is_on_ = true;
  RewireOptions& made = rewirer.options_;
  made.method = *options.method;
  made.reset = options.reset;
  if (made.reset == StateReset::kNewBlocks) {
    for (ValueId v : plan.sparse()->state) {
      if (!plan.graph().value(v).spec.storage.blocks.has_value()) continue;
      return Status::Usage(
          "optimizer state in 8 bits is reset as a whole when weights are "
          "rewired: its blocks share scales. Leave out "
          "RewiringOptions::reset = StateReset::kNewBlocks, or store state in "
          "16 bits");
    }
  }
  int64_t blocks = 0;
  for (size_t m = 0; m < layout.size(); ++m)
    blocks += layout.matrix(m).blocks();
  const RewiringScale scale = WrnRewiringScale(plan.options().sparse.nonzero);
  rewirer.times_ = {.kind = RewiringTimes::Kind::kWrn,
                    .frequency = scale.frequency};
  if (options.every > 0) {
    rewirer.times_ = {.kind = RewiringTimes::Kind::kEvery,
                      .every = options.every};
  }
  made.target = RewiringTarget(scale.fraction, blocks);
  made.fraction = kSetFraction;
  if (options.prune > 0) {
    made.target = static_cast<int64_t>(options.prune *
                                       static_cast<double>(layout.kept()));
    made.fraction = options.prune;
  }
  return rewirer;
}

std::optional<RewireOptions> Rewirer::Due(int64_t step, const RunLength& length,
                                          const RewiringState& state) const {
  if (!is_on_ || !IsRewiringDue(times_, step, length)) return std::nullopt;
  RewireOptions due = options_;
  due.threshold = static_cast<float>(state.threshold);
  return due;
}

void Rewirer::Done(const RewireResult& result, RewiringState* state) const {
  if (options_.method == RewireMethod::kDsr) {
    state->threshold = static_cast<double>(result.threshold);
  }
  ++state->rewirings;
}

std::map<std::string, std::string> Rewirer::Settings() const {
  if (!is_on_) return {};
  return {{"rewiring", MethodName(options_.method)},
          {"rewiring every",
           times_.kind == RewiringTimes::Kind::kEvery
               ? fmt::format("{} steps", times_.every)
               : fmt::format("schedule times {}", times_.frequency)},
          {"rewiring prunes", options_.method == RewireMethod::kDsr
                                  ? fmt::format("{} blocks", options_.target)
                                  : fmt::format("{}", options_.fraction)},
          {"rewiring resets", options_.reset == StateReset::kWhole
                                  ? "all state"
                                  : "state of new blocks"}};
}

}  // namespace thimble::train
