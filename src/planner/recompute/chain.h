// SPDX-License-Identifier: Apache-2.0
//
// A training pass as a chain of stages. Forward is cut where one value alone is
// carried on (an articulation point of the graph) and backward reads it anyway.
// What stands behind a cut can be computed again from that value, the inputs
// and the parameters:
//
//   feed ──► stem ──x1──► block ──x2──► block ──x3──► … ──output──► loss
//
// Where a long piece has no such point (recurrent networks carry a state of
// several values), it is cut where the fewest bytes are carried on.
#pragma once

#include <cstddef>
#include <vector>

#include "planner/program.h"

namespace thimble::planner {

struct Stage {
  std::vector<OpId> forward;     // in the order of the program
  std::vector<OpId> backward;    // likewise
  std::vector<ValueId> carried;  // what later stages read; empty for the last
  // Somewhere inside, two values or more are carried on: a residual block.
  bool branches = false;
};

struct Chain {
  std::vector<Stage> stages;
};

// REQUIRES: the program trains and nothing in it runs twice.
Chain FindChain(const Program& program);

// Neighbours merged until there are at most `most` stages.
Chain MergeStages(const Chain& chain, size_t most);

// Whether the forward pass makes `v` and could make it again: state, inputs and
// statistics are always there.
bool IsRecomputable(const Program& program, ValueId v);

}  // namespace thimble::planner
