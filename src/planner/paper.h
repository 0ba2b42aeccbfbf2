// SPDX-License-Identifier: Apache-2.0
//
// The accounting of "Low-Memory Neural Network Training" (Sohoni et al.), so
// that our tables can stand beside theirs. It says what the paper would print,
// not what we allocate. It looks at the mode-free, unfused graph; of the
// planner it asks only which weights are sparse and what each role is stored
// in.
//
// Its rule for activations: forward stores every input of a convolution, linear
// map, batch norm and loss, one bit for each ReLU element and one byte for each
// window of a max pooling; sums, averages and shortcuts store nothing. Backward
// holds, at each node, what is still stored, the gradient of the node's output,
// and gradients that wait for their producer (a residual sum hands one and the
// same gradient to both branches). Scratch, labels and input gradients are not
// counted.
//
// Beside them stand weights, one index of the sparse ones, four vectors for
// each batch norm (six with recomputation) and its counter, gradients of
// weights and the optimizer's state.
#pragma once

#include <optional>

#include "planner/recompute/strategy.h"
#include "thimble/graph.h"
#include "thimble/plan.h"

namespace thimble::planner {

// With the precision and the optimizer of `options`. None for strategies that
// the paper does not name, and for residual ones where the network has no
// residual blocks.
std::optional<PaperFigures> PaperAccounting(const Model& model,
                                            const PlanOptions& options,
                                            const Strategy& strategy = {});

}  // namespace thimble::planner
