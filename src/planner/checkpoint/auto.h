// SPDX-License-Identifier: Apache-2.0
//
// `auto`: of all ways to recompute that the planner knows, the one that does
// the least work in an arena within the budget. They are the schedules on the
// chain's front (chain_front.h) and the named strategies, each measured as a
// whole and placed, and with options.two_pass each with the gradients at its
// peak in two passes (two_pass.h). One list serves all budgets, so a smaller
// budget never takes more bytes and never less work.
#pragma once

#include <optional>

#include "planner/place/place.h"
#include "planner/program.h"
#include "thimble/plan.h"

namespace thimble::planner {

// A program, and where its buffers lie if that is known already: it takes most
// of the time of planning.
struct LoweredProgram {
  Program program;
  std::optional<Placement> placement;
};

// For options.budget; without one, the least work. Where nothing fits, what
// takes the fewest bytes.
LoweredProgram ChooseWithinBudget(const Program& program,
                                  const PlanOptions& options);

}  // namespace thimble::planner
