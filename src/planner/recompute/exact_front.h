// SPDX-License-Identifier: Apache-2.0
//
// The trade of bytes for work of a small program, exactly: of all scripts with
// the program's order of first runs, in which any forward op may run again at
// any time and any value may be dropped at any time, those of which none takes
// fewer bytes and less work than another. Bytes are live bytes as ScriptMeter
// counts them, scratch and overwritten inputs included.
#pragma once

#include <cstddef>
#include <vector>

#include "planner/program.h"
#include "planner/recompute/script.h"
#include "planner/recompute/script_meter.h"

namespace thimble::planner {

struct ExactFront {
  std::vector<Script> scripts;  // the least work first
  // Whether they are the whole front; else the search was given up at some
  // number of bytes, below which there may be more.
  bool is_whole = false;
};

// Looks at no more than about `max_states` states, a state being how far the
// first runs are and what is there, and at no program with more than
// `max_items` values that may be dropped (48 at most).
ExactFront FindExactFront(const Program& program, ScriptMeter& meter,
                          size_t max_items, size_t max_states);

}  // namespace thimble::planner
