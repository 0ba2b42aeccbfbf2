// SPDX-License-Identifier: Apache-2.0
//
// The linear order of a program's ops, and the work in it.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/program.h"
#include "thimble/plan.h"

namespace thimble::planner {

// The phases one after the other, each in the order of emission.
std::vector<ScheduledOp> MakeSchedule(const Program& program);

struct FlopCount {
  int64_t step = 0;       // forward and backward as executed
  int64_t recompute = 0;  // the part of it that was computed before
};

FlopCount CountFlops(const Graph& graph,
                     const std::vector<ScheduledOp>& schedule);

}  // namespace thimble::planner
