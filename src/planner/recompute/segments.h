// SPDX-License-Identifier: Apache-2.0
//
// How the named strategies cut a chain of stages into segments.
#pragma once

#include <cstdint>
#include <functional>

#include "planner/recompute/chain.h"
#include "planner/recompute/script.h"
#include "planner/recompute/strategy.h"

namespace thimble::planner {

// Bytes that a way to cut takes: the most that are live at one time.
using SegmentCost = std::function<size_t(const SegmentPlan&)>;

// REQUIRES: a kind that cuts, none of kNone, kNoBn and kAuto. `cost` is asked
// where a strategy searches (kSqrt).
SegmentPlan CutIntoSegments(const Program& program, const Chain& chain,
                            const Strategy& strategy, const SegmentCost& cost);

}  // namespace thimble::planner
