// SPDX-License-Identifier: Apache-2.0
//
// What the options leave open is chosen here, so that the budget is kept: the
// microbatch, then what is recomputed.
#pragma once

#include <cstdint>
#include <vector>

#include "thimble/plan.h"

namespace thimble::planner {

bool HasBatchNorm(const Model& model);

// The microbatch sizes that may be planned for, in the order in which they are
// tried: the largest first, as it is closest to what was asked for.
std::vector<int64_t> MicrobatchSizes(const Model& model,
                                     const PlanOptions& options);

// Of the first size at which something fits the budget, the plan with the least
// work; where nothing fits, the plan with the fewest bytes of all. So one list
// of plans serves every budget, and less budget never takes more bytes.
// REQUIRES: the options are possible.
Plan ChoosePlan(const Model& model, const PlanOptions& options);

}  // namespace thimble::planner
