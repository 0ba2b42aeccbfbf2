// SPDX-License-Identifier: Apache-2.0
//
// The same network for another batch.
#pragma once

#include "thimble/graph.h"

namespace thimble::planner {

// All axes shrink or grow with the batch, whose own is the first of them.
// REQUIRES: batch >= 1.
Model Rebatch(const Model& model, int64_t batch);

}  // namespace thimble::planner
