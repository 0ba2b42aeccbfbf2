// SPDX-License-Identifier: Apache-2.0
//
// What the options leave open is chosen here, so that the budget is kept: how
// tensors are stored, the microbatch, then what is recomputed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "planner/choices.h"
#include "thimble/plan.h"

namespace thimble::planner {

bool HasBatchNorm(const Model& model);

// The microbatch sizes that may be planned for, in the order in which they are
// tried: the largest first, as it is closest to what was asked for.
std::vector<int64_t> MicrobatchSizes(const Model& model,
                                     const PlanOptions& options);

// The ways to store tensors that may be planned for: the options' own, which is
// tried alone; then the precisions that stand for it where nothing fits, which
// are equals; then, in these where there are any, each share of weights, the
// largest first.
std::vector<std::vector<size_t>> StorageLevels(Choices& choices,
                                               const PlanOptions& options);

// One of all that can be chosen from.
struct Choice {
  Setting setting;
  int64_t microbatch = 0;
  size_t index = 0;  // of Choices::Of
  size_t arena_bytes = 0;
};

// The choice with the smallest arena over what `options` leave open, with the
// threads and recomputation of `setting`, over `sizes`, which are in the order
// of MicrobatchSizes; of equals the one that a budget of these bytes would
// take. REQUIRES: `sizes` is not empty.
Choice FindSmallest(Choices& choices, const PlanOptions& options,
                    const Setting& setting, std::span<const int64_t> sizes);

// Of the first level and the first size at which something fits the budget, the
// plan with the least work; of several precisions that are equals, the one
// whose step costs the least. Where nothing fits, the plan with the fewest
// bytes of all. So one list of plans serves every budget, and less budget never
// takes more bytes.
Plan ChoosePlan(Choices& choices);

}  // namespace thimble::planner
