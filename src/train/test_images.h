// SPDX-License-Identifier: Apache-2.0
//
// For tests only: twelve grey images of 4 x 4 pixels in three classes. Safe to
// share between threads.
#pragma once

#include <cstdint>
#include <span>

#include "thimble/data.h"

namespace thimble::train::testing {

class FewImages final : public Dataset {
 public:
  FewImages()
      : Dataset({.name = "few",
                 .spec = {1, 4, 4, 3},
                 .train_size = 8,
                 .test_size = 4,
                 .mean = {100.5f},
                 .stddev = {50.25f}}) {}

 private:
  Status ReadRecord(Split split, int64_t index, std::span<uint8_t> image,
                    int32_t* label) const override {
    for (size_t i = 0; i < image.size(); ++i) {
      image[i] = static_cast<uint8_t>(37 * i * static_cast<size_t>(index + 3) +
                                      (split == Split::kTest ? 11 : 5));
    }
    *label = static_cast<int32_t>(index % 3);
    return Status::Ok();
  }
};

}  // namespace thimble::train::testing
