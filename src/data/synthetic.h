// SPDX-License-Identifier: Apache-2.0
//
// Computed datasets of ten classes, so that tests, benchmarks and first steps
// need no file: `synthetic`, 28 x 28 grey, and `synthetic-cifar`, 32 x 32 with
// three channels. A class is a grid of light and dark squares in each channel;
// each image shows its class's grid at its own contrast and shift, a weaker
// grid of another class, and noise. Learnable to well over 90%, the same on
// every machine.
#pragma once

#include <memory>

#include "thimble/data.h"

namespace thimble {

std::unique_ptr<Dataset> MakeSyntheticDataset();
std::unique_ptr<Dataset> MakeSyntheticCifarDataset();

}  // namespace thimble
