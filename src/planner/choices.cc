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
  storages_.push_back(
      {{options_.precision, options_.optimizer}, options_.sparse});
}

Setting Choices::setting() const {
  const Strategy strategy = *ParseStrategy(options_.recompute);
  return {.threads = options_.threads,
          .is_auto = strategy.kind == Strategy::Kind::kAuto};
}

PlanOptions Choices::OptionsOf(const Setting& setting) const {
  PlanOptions options = options_;
  options.threads = setting.threads;
  const StorageChoice& storage = storages_[setting.storage];
  options.precision = storage.types.precision;
  options.optimizer = storage.types.optimizer;
  options.sparse = storage.sparse;
  return options;
}

size_t Choices::StorageAt(StorageChoice choice) {
  if (choice.types.optimizer == nullptr) {
    choice.types.optimizer = options_.optimizer;
  }
  const auto found =
      std::ranges::find_if(storages_, [&choice](const StorageChoice& known) {
        return known.types.precision == choice.types.precision &&
               known.types.optimizer == choice.types.optimizer &&
               known.sparse == choice.sparse;
      });
  const auto index = static_cast<size_t>(found - storages_.begin());
  if (found == storages_.end()) storages_.push_back(std::move(choice));
  return index;
}

const Program& Choices::ProgramOf(size_t storage, int64_t microbatch) {
  const std::pair key(storage, microbatch);
  const auto found = programs_.find(key);
  if (found != programs_.end()) return found->second;
  ++programs_built_;
  Setting setting;
  setting.storage = storage;
  return programs_
      .emplace(key, MakeProgram(model_, OptionsOf(setting), microbatch))
      .first->second;
}

Alternatives& Choices::AlternativesOf(const Setting& setting,
                                      int64_t microbatch) {
  TH_CHECK(options_.training);
  const std::tuple key(setting.threads, setting.storage, microbatch);
  const auto found = alternatives_.find(key);
  if (found != alternatives_.end()) return found->second;
  ++alternatives_built_;
  return alternatives_
      .emplace(std::piecewise_construct, std::forward_as_tuple(key),
               std::forward_as_tuple(ProgramOf(setting.storage, microbatch),
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
  only.program = ApplyStrategy(ProgramOf(setting.storage, microbatch),
                               *ParseStrategy(options.recompute), options);
  only.placement = PlaceBuffers(only.program, options);
  return choices_.emplace(key, SizeChoice(std::move(only))).first->second;
}

}  // namespace thimble::planner
