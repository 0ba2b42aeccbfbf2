// SPDX-License-Identifier: Apache-2.0
//
// The accounting of "Low-Memory Neural Network Training" (Sohoni et al.), so
// that our tables can stand beside theirs. It looks at the mode-free, unfused
// graph only and shares no code with the planner: it says what the paper would
// print, not what we allocate.
//
// Its rule: forward stores every input of a convolution, linear map, batch norm
// and loss, and one bit for each ReLU element; sums, averages and shortcuts
// store nothing. Backward holds, at each node, what is still stored, the
// gradient of the node's output, and gradients that wait for their producer (a
// residual sum hands one and the same gradient to both branches). Scratch,
// labels and input gradients are not counted.
#pragma once

#include "thimble/graph.h"
#include "thimble/plan.h"

namespace thimble::planner {

// For the strategy `none` in f32.
PaperBytes PaperAccounting(const Model& model, const OptimizerSpec& optimizer);

}  // namespace thimble::planner
