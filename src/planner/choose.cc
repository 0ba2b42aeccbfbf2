// SPDX-License-Identifier: Apache-2.0
#include "planner/choose.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <optional>
#include <utility>

#include "base/check.h"
#include "graph/op.h"
#include "ops/batch_norm.h"
#include "planner/assemble.h"
#include "planner/batch_statistics.h"
#include "planner/recompute/strategy.h"
#include "planner/recompute/strategy_script.h"

namespace thimble {
namespace {

// Fewer images are too few to estimate a mean and a variance from.
constexpr int64_t kMinNormalized = 8;

int64_t MinMicrobatch(const Model& model, const PlanOptions& options) {
  // Batch norms see ghost batches, however many of them a microbatch has.
  if (options.ghost_batch > 0) {
    return std::max(options.min_microbatch, options.ghost_batch);
  }
  if (options.min_microbatch > 0) {
    return std::max(options.min_microbatch,
                    planner::LeastImagesOfStatistics(model));
  }
  return planner::HasBatchNorm(model) ? kMinNormalized : 1;
}

// What can be chosen from at one microbatch size: a named strategy's program
// alone, or all alternatives.
class SizeChoice {
 public:
  SizeChoice(const Model& model, const PlanOptions& options, int64_t microbatch)
      : microbatch_(microbatch) {
    using planner::Strategy;
    const Strategy strategy = *planner::ParseStrategy(options.checkpoint);
    planner::Program program = planner::MakeProgram(model, options, microbatch);
    if (strategy.kind == Strategy::Kind::kAuto && options.training) {
      alternatives_.emplace(std::move(program), options);
      return;
    }
    fixed_.program =
        planner::ApplyStrategy(std::move(program), strategy, options);
    fixed_.placement = planner::PlaceBuffers(fixed_.program, options);
  }

  int64_t microbatch() const { return microbatch_; }

  // With the least work.
  std::optional<planner::LoweredProgram> Within(uint64_t budget) {
    if (!alternatives_.has_value()) {
      return Fixed(fixed_.placement.bytes <= budget);
    }
    return Lowered(alternatives_->LeastWorkWithin(budget));
  }

  // With the fewest bytes.
  std::optional<planner::LoweredProgram> Below(uint64_t limit) {
    if (!alternatives_.has_value()) {
      return Fixed(fixed_.placement.bytes < limit);
    }
    return Lowered(alternatives_->FewestBytesBelow(limit));
  }

 private:
  std::optional<planner::LoweredProgram> Fixed(bool fits) {
    if (!fits) return std::nullopt;
    return std::move(fixed_);
  }

  std::optional<planner::LoweredProgram> Lowered(std::optional<size_t> index) {
    if (!index.has_value()) return std::nullopt;
    return alternatives_->Lower(*index);
  }

  int64_t microbatch_;
  std::optional<planner::Alternatives> alternatives_;
  planner::LoweredProgram fixed_;
};

}  // namespace

bool planner::HasBatchNorm(const Model& model) {
  return std::any_of(model.graph.ops().begin(), model.graph.ops().end(),
                     [](const Op& op) { return Is<ops::BatchNorm>(op); });
}

std::vector<int64_t> planner::MicrobatchSizes(const Model& model,
                                              const PlanOptions& options) {
  if (options.microbatch > 0) return {options.microbatch};
  const int64_t batch = model.batch();
  std::vector<int64_t> sizes = {batch};
  if (!options.budget.has_value() || !options.allow_microbatch ||
      !options.training) {
    return sizes;
  }
  const int64_t least = MinMicrobatch(model, options);
  const int64_t group = std::max<int64_t>(options.ghost_batch, 1);
  for (int64_t images = batch / 2; images >= least; --images) {
    if (batch % images == 0 && images % group == 0) sizes.push_back(images);
  }
  return sizes;
}

Plan planner::ChoosePlan(const Model& model, const PlanOptions& options) {
  constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();
  const uint64_t budget = options.budget.value_or(kNoLimit);
  std::deque<SizeChoice> choices;
  for (int64_t microbatch : MicrobatchSizes(model, options)) {
    SizeChoice& choice = choices.emplace_back(model, options, microbatch);
    if (auto fitting = choice.Within(budget)) {
      return AssemblePlan(model, options, microbatch, *std::move(fitting));
    }
  }
  // Small ones mostly take the fewest bytes; of the others, little has to be
  // placed then. Of equals the largest is taken, as with a budget of its bytes.
  std::optional<LoweredProgram> smallest;
  int64_t microbatch = 0;
  for (auto choice = choices.rbegin(); choice != choices.rend(); ++choice) {
    auto smaller = choice->Below(
        smallest.has_value() ? smallest->placement.bytes + 1 : kNoLimit);
    if (!smaller.has_value()) continue;
    smallest = std::move(smaller);
    microbatch = choice->microbatch();
  }
  TH_CHECK(smallest.has_value());
  return AssemblePlan(model, options, microbatch, *std::move(smallest));
}

}  // namespace thimble
