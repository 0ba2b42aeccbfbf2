// SPDX-License-Identifier: Apache-2.0
//
// The `synthetic` dataset: 28 x 28 grey images of ten classes, computed from
// their index, so that tests and first steps need no file. A class is a grid of
// light and dark squares; each image shows its class's grid at its own contrast
// and shift, a weaker grid of another class, and noise. Learnable to well over
// 90%, the same on every machine.
#pragma once

#include <memory>

#include "thimble/data.h"

namespace thimble {

std::unique_ptr<Dataset> MakeSyntheticDataset();

}  // namespace thimble
