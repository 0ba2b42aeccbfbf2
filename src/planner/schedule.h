// SPDX-License-Identifier: Apache-2.0
//
// The linear order of a program's ops, and what it takes to run it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "planner/buffers.h"
#include "planner/program.h"
#include "thimble/plan.h"

namespace thimble::planner {

// The phases one after the other, each in the order of emission.
std::vector<ScheduledOp> MakeSchedule(const Program& program);

// Bytes live at each time of the schedule.
std::vector<size_t> LiveBytes(const Program& program,
                              const PlanOptions& options);

// Most bytes live at one time: the least arena that could do.
size_t MostLiveBytes(const Program& program, const PlanOptions& options);

// Offsets of the buffers that MakeBuffers makes, in its order.
struct PlacedBuffers {
  std::vector<size_t> offsets;
  size_t bytes = 0;
  Overwritten overwritten = Overwritten::kOldest;
};

PlacedBuffers PlaceBuffers(const Program& program, const PlanOptions& options);

struct FlopCount {
  int64_t step = 0;       // forward and backward as executed
  int64_t recompute = 0;  // the part of it that was computed before
};

FlopCount CountFlops(const Graph& graph,
                     const std::vector<ScheduledOp>& schedule);

}  // namespace thimble::planner
