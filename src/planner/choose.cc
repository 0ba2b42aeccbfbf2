// SPDX-License-Identifier: Apache-2.0
#include "planner/choose.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "base/check.h"
#include "graph/op.h"
#include "ops/batch_norm.h"
#include "planner/assemble.h"
#include "planner/batch_statistics.h"

namespace thimble {
namespace {

constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();

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

planner::Smallest planner::FindSmallest(Choices& choices,
                                        const Setting& setting,
                                        std::span<const int64_t> sizes) {
  // Small ones mostly take the fewest bytes; of the others, little has to be
  // placed then.
  std::optional<Smallest> smallest;
  for (size_t i = sizes.size(); i-- > 0;) {
    SizeChoice& choice = choices.Of(setting, sizes[i]);
    const auto index = choice.FewestBytesBelow(
        smallest.has_value() ? smallest->arena_bytes + 1 : kNoLimit);
    if (!index.has_value()) continue;
    smallest = {sizes[i], *index, choice.ArenaOf(*index)};
  }
  TH_CHECK(smallest.has_value());
  return *smallest;
}

Plan planner::ChoosePlan(Choices& choices) {
  const Model& model = choices.model();
  const PlanOptions& options = choices.options();
  const Setting setting = choices.setting();
  const uint64_t budget = options.budget.value_or(kNoLimit);
  const std::vector<int64_t> sizes = MicrobatchSizes(model, options);
  const auto assemble = [&](int64_t microbatch, size_t index) {
    return AssemblePlan(model, options, microbatch,
                        choices.Of(setting, microbatch).Lower(index));
  };
  for (int64_t microbatch : sizes) {
    const auto index = choices.Of(setting, microbatch).LeastWorkWithin(budget);
    if (index.has_value()) return assemble(microbatch, *index);
  }
  const Smallest smallest = FindSmallest(choices, setting, sizes);
  return assemble(smallest.microbatch, smallest.index);
}

}  // namespace thimble
