// SPDX-License-Identifier: Apache-2.0
//
// Fusion: batch norm, ReLU and the convolution that alone reads them become one
// fused-conv, with the residual sum that alone reads its result; images that
// are normalised for one convolution alone become its bytes. The network
// computes the same and stores less.
#pragma once

#include "thimble/graph.h"

namespace thimble::planner {

// A model with the same ends, parameters and names of parameters, whose graph
// holds the fused ops.
Model Fuse(const Model& model);

}  // namespace thimble::planner
