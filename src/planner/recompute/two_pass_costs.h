// SPDX-License-Identifier: Apache-2.0
//
// What the stages of a chain take where gradients may be made in two passes
// (planner/two_pass.h): for ChainFront, to weigh a second pass against keeping
// less and computing more of forward again.
#pragma once

#include "planner/program.h"
#include "planner/recompute/chain.h"
#include "planner/recompute/stage_costs.h"
#include "thimble/plan.h"

namespace thimble::planner {

// Each stage's options are those of MeasureChain and, behind them, the same
// with all of the stage's gradients in two passes, where that takes fewer
// bytes. They cost the second passes too.
MeasuredChain MeasureChainInTwoPasses(const Program& program,
                                      const Chain& chain,
                                      const PlanOptions& options);

}  // namespace thimble::planner
