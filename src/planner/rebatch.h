// SPDX-License-Identifier: Apache-2.0
//
// The same network for another number of images at a time.
#pragma once

#include "thimble/graph.h"

namespace thimble::planner {

// REQUIRES: images >= 1.
Model Rebatch(const Model& model, int64_t images);

}  // namespace thimble::planner
