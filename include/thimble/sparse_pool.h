// SPDX-License-Identifier: Apache-2.0
//
// SparsePool: where a plan keeps its sparse weights. Plain values.
#pragma once

#include <cstdint>
#include <vector>

#include "thimble/graph.h"
#include "thimble/sparsity.h"

namespace thimble {

// The sparse weights of a plan, and what there is of each kept value: pools, of
// which every weight, its gradient and its state are members (sparsity.h).
struct SparsePool {
  PoolLayout layout;
  ValueId index;
  // Each of as many values as the layout keeps.
  ValueId parameters;
  ValueId gradients;           // invalid where they are not stored
  std::vector<ValueId> state;  // of the optimizer, piece by piece
  // In the order of the pool: which of Plan::parameters() they are.
  std::vector<uint32_t> members;
};

}  // namespace thimble
