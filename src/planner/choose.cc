// SPDX-License-Identifier: Apache-2.0
#include "planner/choose.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "graph/op.h"
#include "ops/batch_norm.h"
#include "planner/assemble.h"
#include "planner/batch_statistics.h"

namespace thimble {
namespace {

constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();

// Fewer are too few to estimate a mean and a variance from.
constexpr int64_t kMinNormalized = 8;

int64_t MinMicrobatch(const Model& model, const PlanOptions& options) {
  // Batch norms see ghost batches, however many of them a microbatch has.
  if (options.ghost_batch > 0) {
    return std::max(options.min_microbatch, options.ghost_batch);
  }
  if (options.min_microbatch > 0) {
    return std::max(options.min_microbatch,
                    planner::LeastMicrobatchOfStatistics(model));
  }
  return planner::HasBatchNorm(model) ? kMinNormalized : 1;
}

// Of the ways to store at one level and one size, what fits and costs the
// least.
std::optional<planner::Choice> CheapestWithin(planner::Choices& choices,
                                              planner::Setting setting,
                                              std::span<const size_t> level,
                                              int64_t microbatch,
                                              uint64_t budget) {
  std::optional<planner::Choice> cheapest;
  int64_t least = 0;
  for (size_t storage : level) {
    setting.storage = storage;
    planner::SizeChoice& choice = choices.Of(setting, microbatch);
    const auto index = choice.LeastWorkWithin(budget);
    if (!index.has_value()) continue;
    // Nothing to compare with, no cost to count.
    const int64_t cost =
        level.size() == 1
            ? 0
            : choice.CostOf(*index, choices.options().target_class);
    if (cheapest.has_value() && cost >= least) continue;
    cheapest = {setting, microbatch, *index, choice.ArenaOf(*index)};
    least = cost;
  }
  return cheapest;
}

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
  for (int64_t size = batch / 2; size >= least; --size) {
    if (batch % size == 0 && size % group == 0) sizes.push_back(size);
  }
  return sizes;
}

std::vector<std::vector<size_t>> planner::StorageLevels(
    Choices& choices, const PlanOptions& options) {
  std::vector<std::vector<size_t>> levels = {{0}};
  if (!options.budget.has_value() || !options.training) return levels;
  const PlanOptions& own = choices.options();
  std::vector<PrecisionChoice> types = options.allow_precision;
  const auto add = [&](const SparseWeights& sparse) {
    std::vector<size_t>& level = levels.emplace_back();
    for (const PrecisionChoice& choice : types) {
      level.push_back(choices.StorageAt({choice, sparse}));
    }
  };
  if (!types.empty()) add(own.sparse);
  if (types.empty()) types.push_back({own.precision, own.optimizer});
  SparseWeights sparse = own.sparse;
  for (double nonzero : options.allow_nonzero) {
    sparse.nonzero = nonzero;
    add(sparse);
  }
  return levels;
}

planner::Choice planner::FindSmallest(Choices& choices,
                                      const PlanOptions& options,
                                      const Setting& setting,
                                      std::span<const int64_t> sizes) {
  // Narrow types and small sizes mostly take the fewest bytes; of the others,
  // little has to be placed then.
  const auto levels = StorageLevels(choices, options);
  std::optional<Choice> smallest;
  const std::vector<size_t>* level = nullptr;
  for (size_t l = levels.size(); l-- > 0;) {
    for (size_t i = sizes.size(); i-- > 0;) {
      for (size_t p = levels[l].size(); p-- > 0;) {
        Setting at = setting;
        at.storage = levels[l][p];
        SizeChoice& choice = choices.Of(at, sizes[i]);
        const auto index = choice.FewestBytesBelow(
            smallest.has_value() ? smallest->arena_bytes + 1 : kNoLimit);
        if (!index.has_value()) continue;
        smallest = {at, sizes[i], *index, choice.ArenaOf(*index)};
        level = &levels[l];
      }
    }
  }
  TH_CHECK(smallest.has_value());
  if (level->size() == 1) return *smallest;
  return *CheapestWithin(choices, setting, *level, smallest->microbatch,
                         smallest->arena_bytes);
}

Plan planner::ChoosePlan(Choices& choices) {
  const Model& model = choices.model();
  const PlanOptions& options = choices.options();
  const Setting setting = choices.setting();
  const uint64_t budget = options.budget.value_or(kNoLimit);
  const std::vector<int64_t> sizes = MicrobatchSizes(model, options);
  const auto assemble = [&](const Choice& choice) {
    return AssemblePlan(
        model, choices.OptionsOf(choice.setting), choice.microbatch,
        choices.Of(choice.setting, choice.microbatch).Lower(choice.index));
  };
  for (const std::vector<size_t>& level : StorageLevels(choices, options)) {
    for (int64_t microbatch : sizes) {
      const std::optional<Choice> found =
          CheapestWithin(choices, setting, level, microbatch, budget);
      if (found.has_value()) return assemble(*found);
    }
  }
  return assemble(FindSmallest(choices, options, setting, sizes));
}

}  // namespace thimble
