// SPDX-License-Identifier: Apache-2.0
//
// The plan of a search, over its budget or not.
#pragma once

#include <utility>

#include "thimble/graph.h"
#include "thimble/plan.h"
#include "thimble/plan_search.h"
#include "thimble/status.h"

namespace thimble::testing {

inline Result<Plan> MakeClosestPlan(const Model& model,
                                    const PlanOptions& options) {
  Result<PlanSearch> search = PlanSearch::Create(model, options);
  if (!search.ok()) return search.status();
  return std::move(*search).Take();
}

}  // namespace thimble::testing
