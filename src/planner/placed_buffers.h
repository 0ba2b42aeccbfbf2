// SPDX-License-Identifier: Apache-2.0
//
// What it takes to run a program: bytes live over time, and a place for every
// buffer.
#pragma once

#include <cstddef>
#include <vector>

#include "planner/buffers.h"
#include "planner/program.h"
#include "thimble/plan.h"

namespace thimble::planner {

// Bytes live at each time of the schedule.
std::vector<size_t> LiveBytes(const Program& program,
                              const PlanOptions& options);

// Offsets of the buffers that MakeBuffers makes, in its order.
struct PlacedBuffers {
  std::vector<size_t> offsets;
  size_t bytes = 0;
  Overwritten overwritten = Overwritten::kOldest;
};

PlacedBuffers PlaceBuffers(const Program& program, const PlanOptions& options);

}  // namespace thimble::planner
