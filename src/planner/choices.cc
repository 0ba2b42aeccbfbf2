// SPDX-License-Identifier: Apache-2.0
#include "planner/choices.h"

#include <algorithm>
#include <tuple>

#include "base/check.h"
#include "planner/assemble.h"
#include "planner/recompute/strategy.h"
#include "planner/recompute/strategy_script.h"
#include "planner/step_cost.h"

namespace thimble::planner {

std::optional<size_t> SizeChoice::LeastWorkWithin(uint64_t budget) {
  if (all_ != nullptr) return all_->LeastWorkWithin(budget);
  if (only_bytes_ > budget) return std::nullopt;
  return 0;
}

std::optional<size_t> SizeChoice::FewestBytesBelow(uint64_t limit) {
  if (all_ != nullptr) return all_->FewestBytesBelow(limit);
  if (only_bytes_ >= limit) return std::nullopt;
  return 0;
}

size_t SizeChoice::ArenaOf(size_t index) {
  return all_ != nullptr ? all_->ArenaOf(index) : only_bytes_;
}

int64_t SizeChoice::CostOf(size_t index, TargetClass target) {
  if (all_ != nullptr) return StepCost(all_->Lower(index).program, target);
  TH_CHECK(only_.has_value());
  return StepCost(only_->program, target);
}

LoweredProgram SizeChoice::Lower(size_t index) {
  if (all_ != nullptr) return all_->Lower(index);
  TH_CHECK(only_.has_value());
  LoweredProgram lowered = *std::move(only_);
  only_.reset();
  return lowered;
}

Choices::Choices(Model model, PlanOptions options)
    : model_(std::move(model)), options_(std::move(options)) {
  precisions_.push_back({options_.precision, options_.optimizer});
}

Setting Choices::setting() const {
  const Strategy strategy = *ParseStrategy(options_.recompute);
  return {.threads = options_.threads,
          .is_auto = strategy.kind == Strategy::Kind::kAuto};
}

PlanOptions Choices::OptionsOf(const Setting& setting) const {
  PlanOptions options = options_;
  options.threads = setting.threads;
  options.precision = precisions_[setting.precision].precision;
  options.optimizer = precisions_[setting.precision].optimizer;
  return options;
}

size_t Choices::PrecisionAt(PrecisionChoice choice) {
  if (choice.optimizer == nullptr) choice.optimizer = options_.optimizer;
  const auto found = std::ranges::find_if(
      precisions_, [&choice](const PrecisionChoice& known) {
        return known.precision == choice.precision &&
               known.optimizer == choice.optimizer;
      });
  const auto index = static_cast<size_t>(found - precisions_.begin());
  if (found == precisions_.end()) precisions_.push_back(std::move(choice));
  return index;
}

const Program& Choices::ProgramOf(size_t precision, int64_t microbatch) {
  const std::pair key(precision, microbatch);
  const auto found = programs_.find(key);
  if (found != programs_.end()) return found->second;
  ++programs_built_;
  Setting setting;
  setting.precision = precision;
  return programs_
      .emplace(key, MakeProgram(model_, OptionsOf(setting), microbatch))
      .first->second;
}

Alternatives& Choices::AlternativesOf(const Setting& setting,
                                      int64_t microbatch) {
  TH_CHECK(options_.training);
  const std::tuple key(setting.threads, setting.precision, microbatch);
  const auto found = alternatives_.find(key);
  if (found != alternatives_.end()) return found->second;
  ++alternatives_built_;
  return alternatives_
      .emplace(std::piecewise_construct, std::forward_as_tuple(key),
               std::forward_as_tuple(ProgramOf(setting.precision, microbatch),
                                     OptionsOf(setting)))
      .first->second;
}

SizeChoice& Choices::Of(const Setting& setting, int64_t microbatch) {
  const std::pair key(setting, microbatch);
  const auto found = choices_.find(key);
  if (found != choices_.end()) return found->second;
  // Evaluation has nothing to recompute.
  if (setting.is_auto && options_.training) {
    Alternatives& all = AlternativesOf(setting, microbatch);
    return choices_.emplace(key, SizeChoice(all)).first->second;
  }
  const PlanOptions options = OptionsOf(setting);
  LoweredProgram only;
  only.program = ApplyStrategy(ProgramOf(setting.precision, microbatch),
                               *ParseStrategy(options.recompute), options);
  only.placement = PlaceBuffers(only.program, options);
  return choices_.emplace(key, SizeChoice(std::move(only))).first->second;
}

}  // namespace thimble::planner
