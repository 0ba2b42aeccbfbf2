// SPDX-License-Identifier: Apache-2.0
//
// OracleFront: the exact trade of bytes for work of a small program, by brute
// force over everything that recomputation could do: from every set of values
// that could be there, every op that could run, every input that it could
// overwrite and every value that could be dropped. It shares no code with the
// planner. Of a plan without recomputation it reads the graph and the order of
// the ops, nothing else. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "thimble/plan.h"

namespace thimble::testing {

struct OraclePoint {
  int64_t bytes;  // most live at one time
  int64_t work;   // FLOPs of what runs again
};

// The least work first. REQUIRES: `plan` has no recomputation.
std::vector<OraclePoint> OracleFront(const Plan& plan);

// Values that may be dropped, to the number of whose sets the time grows.
size_t OracleCells(const Plan& plan);

}  // namespace thimble::testing
