// SPDX-License-Identifier: Apache-2.0
//
// The plans next to a plan: fewer bytes for more work, or the other way round.
#pragma once

#include <vector>

#include "planner/choices.h"
#include "thimble/plan.h"
#include "thimble/plan_search.h"

namespace thimble::planner {

// See PlanSearch::TradeOffs. REQUIRES: `plan` was chosen from `choices`.
std::vector<TradeOff> FindTradeOffs(Choices& choices, const Plan& plan);

}  // namespace thimble::planner
