// SPDX-License-Identifier: Apache-2.0
//
// What weights on disk say of the images that their network was trained on:
// enough to build the same network again. Pure functions, safe from every
// thread.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "thimble/data.h"
#include "train/weights.h"

namespace thimble::train {

struct TrainedImages {
  ImageSpec spec{};
  std::vector<float> mean, stddev;  // per channel
};

WeightsFacts ImageFacts(const ImageSpec& images, std::span<const float> mean,
                        std::span<const float> stddev);

// None where the facts do not tell all of it.
std::optional<TrainedImages> ReadImageFacts(const WeightsFacts& facts);

}  // namespace thimble::train
