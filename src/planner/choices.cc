// SPDX-License-Identifier: Apache-2.0
#include "planner/choices.h"

#include <tuple>

#include "base/check.h"
#include "planner/assemble.h"
#include "planner/recompute/strategy.h"
#include "planner/recompute/strategy_script.h"

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

LoweredProgram SizeChoice::Lower(size_t index) {
  if (all_ != nullptr) return all_->Lower(index);
  TH_CHECK(only_.has_value());
  LoweredProgram lowered = *std::move(only_);
  only_.reset();
  return lowered;
}

Choices::Choices(Model model, PlanOptions options)
    : model_(std::move(model)), options_(std::move(options)) {}

Setting Choices::setting() const {
  const Strategy strategy = *ParseStrategy(options_.recompute);
  return {.threads = options_.threads,
          .is_auto = strategy.kind == Strategy::Kind::kAuto};
}

PlanOptions Choices::OptionsWith(int threads) const {
  PlanOptions options = options_;
  options.threads = threads;
  return options;
}

const Program& Choices::ProgramOf(int64_t microbatch) {
  const auto found = programs_.find(microbatch);
  if (found != programs_.end()) return found->second;
  ++programs_built_;
  return programs_
      .emplace(microbatch, MakeProgram(model_, options_, microbatch))
      .first->second;
}

Alternatives& Choices::AlternativesOf(int threads, int64_t microbatch) {
  TH_CHECK(options_.training);
  const std::pair key(threads, microbatch);
  const auto found = alternatives_.find(key);
  if (found != alternatives_.end()) return found->second;
  ++alternatives_built_;
  return alternatives_
      .emplace(
          std::piecewise_construct, std::forward_as_tuple(key),
          std::forward_as_tuple(ProgramOf(microbatch), OptionsWith(threads)))
      .first->second;
}

SizeChoice& Choices::Of(const Setting& setting, int64_t microbatch) {
  const std::pair key(setting, microbatch);
  const auto found = choices_.find(key);
  if (found != choices_.end()) return found->second;
  // Evaluation has nothing to recompute.
  if (setting.is_auto && options_.training) {
    Alternatives& all = AlternativesOf(setting.threads, microbatch);
    return choices_.emplace(key, SizeChoice(all)).first->second;
  }
  const PlanOptions options = OptionsWith(setting.threads);
  LoweredProgram only;
  only.program = ApplyStrategy(ProgramOf(microbatch),
                               *ParseStrategy(options.recompute), options);
  only.placement = PlaceBuffers(only.program, options);
  return choices_.emplace(key, SizeChoice(std::move(only))).first->second;
}

}  // namespace thimble::planner
