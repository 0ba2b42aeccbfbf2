// SPDX-License-Identifier: Apache-2.0
//
// The two small networks: a first run in a minute, and the tests' subjects.
// A dropout stands before the last layer.
#pragma once

#include "thimble/model.h"

namespace thimble::models {

// flatten – 256 – ReLU – 128 – ReLU – classes
Result<Model> BuildMlp(const ModelOptions& options);

// conv 16 – pool – conv 32 – conv 32 – pool – conv 64 – global pool – classes;
// every convolution 3×3, followed by batch norm and ReLU.
Result<Model> BuildCnn(const ModelOptions& options);

}  // namespace thimble::models
