// SPDX-License-Identifier: Apache-2.0
//
// How a plan stores a value, by its role. Pure.
#pragma once

#include "thimble/graph.h"
#include "thimble/precision.h"

namespace thimble::planner {

// What is one number per channel or feature stays f32: it has one dimension, or
// is no activation of a batch though it stands among them. What is no float
// stays as it is.
Storage StorageOf(const ValueSpec& spec, Role role, const Precision& precision);

}  // namespace thimble::planner
