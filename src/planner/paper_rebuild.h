// SPDX-License-Identifier: Apache-2.0
//
// Which of the values that the paper's rule stores (paper.h) a recomputation
// strategy drops, when backward has them again, and what that costs. Like the
// rest of the accounting it reads the mode-free, unfused graph and shares no
// code with the planner.
//
// residual-M keeps the output of every M-th residual block and rebuilds what
// stands between two of them when backward gets there. residual-M* rebuilds the
// outputs of the blocks between first; a batch norm's other inputs when
// backward enters their block; and what convolutions read, with the ReLU's
// bits, when a convolution is back-propagated. no-bn does the latter alone.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "planner/recompute/strategy.h"
#include "thimble/graph.h"

namespace thimble::planner {

// Stored by forward, and not dropped.
inline constexpr int64_t kStoredByForward = -1;

struct PaperRebuild {
  // Per value and per op (a ReLU's bits, a pooling's winners): the op whose
  // backward first finds it rebuilt.
  std::vector<int64_t> value_at, bits_at;
  // Of convolutions and linear maps, and three for each element that is
  // normalised and rectified again; each batch norm counts once.
  double flops_ratio = 1;
};

// None where the paper does not define the strategy for this network.
std::optional<PaperRebuild> FindPaperRebuild(const Model& model,
                                             const Strategy& strategy);

}  // namespace thimble::planner
