// SPDX-License-Identifier: Apache-2.0
//
// What is told where nothing fits the budget: the peak, and budgets that do.
#pragma once

#include <string>

#include "planner/choices.h"
#include "thimble/plan.h"
#include "thimble/plan_search.h"

namespace thimble::planner {

// REQUIRES: `plan` was chosen from `choices`, and is over their budget.
Refusal ExplainRefusal(Choices& choices, const Plan& plan);

// All of it, for whoever sets PlanOptions.
std::string RefusalText(const Refusal& refusal);

}  // namespace thimble::planner
