// SPDX-License-Identifier: Apache-2.0
//
// From a strategy to the script that it stands for: which forward values are
// kept for backward, and which are dropped and computed again. Results do not
// depend on it, bit for bit.
#pragma once

#include "planner/program.h"
#include "planner/recompute/chain.h"
#include "planner/recompute/script.h"
#include "planner/recompute/script_meter.h"
#include "planner/recompute/strategy.h"
#include "thimble/plan.h"

namespace thimble::planner {

// REQUIRES: strategy is not kAuto. The meter is the program's.
Script ScriptOf(const Program& program, const Chain& chain,
                const Strategy& strategy, ScriptMeter& meter);

// The program with what `strategy` recomputes written out as ops. REQUIRES:
// strategy is not kAuto, for which Alternatives chooses.
Program ApplyStrategy(const Program& program, const Strategy& strategy,
                      const PlanOptions& options);

}  // namespace thimble::planner
