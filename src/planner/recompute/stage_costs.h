// SPDX-License-Identifier: Apache-2.0
//
// Measures what the stages of a chain take, for ChainFront: their ops are run
// on paper, each stage by itself, with the in-place rules of the planner.
#pragma once

#include <vector>

#include "planner/recompute/chain.h"
#include "planner/recompute/chain_front.h"
#include "thimble/plan.h"

namespace thimble::planner {

struct MeasuredChain {
  std::vector<StageCosts> stages;
  // Per stage and option, the values that it saves.
  std::vector<std::vector<std::vector<ValueId>>> saved;
};

MeasuredChain MeasureChain(const Program& program, const Chain& chain,
                           const PlanOptions& options);

}  // namespace thimble::planner
