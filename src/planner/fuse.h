// SPDX-License-Identifier: Apache-2.0
//
// Fusion. A batch norm, a ReLU and a convolution, each the only reader of the
// one before, become one fused-conv; a sum with a residual that alone reads the
// convolution joins them. Where one convolution alone reads normalised images,
// it reads their bytes instead. The network computes the same, rounded in fewer
// places, and stores less.
#pragma once

#include "thimble/graph.h"

namespace thimble::planner {

// A model with the same ends, parameters and names of parameters, whose graph
// holds the fused ops.
Model Fuse(const Model& model);

}  // namespace thimble::planner
