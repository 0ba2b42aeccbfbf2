// SPDX-License-Identifier: Apache-2.0
//
// The first records of another data set: enough for bits to differ.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "thimble/data.h"

namespace thimble::testing {

class FewRecords final : public Dataset {
 public:
  struct Sizes {
    int64_t train = 0, test = 0;
  };

  FewRecords(std::unique_ptr<Dataset> full, Sizes sizes)
      : Dataset({.name = "few",
                 .spec = full->spec(),
                 .train_size = sizes.train,
                 .test_size = sizes.test,
                 .mean = {full->mean().begin(), full->mean().end()},
                 .stddev = {full->stddev().begin(), full->stddev().end()}}),
        full_(std::move(full)) {}

 private:
  Status ReadRecord(Split split, int64_t index, std::span<uint8_t> image,
                    int32_t* label) const override {
    return full_->Read(split, index, image, label);
  }

  std::unique_ptr<Dataset> full_;
};

}  // namespace thimble::testing
