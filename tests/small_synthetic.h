// SPDX-License-Identifier: Apache-2.0
//
// A data set for tests that train: 96 images of 14 x 14, 10 to test on. Safe to
// share between threads.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "thimble/data.h"

namespace thimble::testing {

// Every second pixel of the synthetic images, and few of them: what is tested
// does not need more, and tests under sanitizers are slow.
class SmallSynthetic final : public Dataset {
 public:
  // Null where the full set cannot be opened.
  static std::unique_ptr<Dataset> Open() {
    auto full = OpenDataset("synthetic", {});
    if (!full.ok()) return nullptr;
    return std::make_unique<SmallSynthetic>(*std::move(full));
  }

  explicit SmallSynthetic(std::unique_ptr<Dataset> full)
      : Dataset({.name = "small",
                 .spec = {1, kSide, kSide, full->spec().classes},
                 .train_size = 96,
                 .test_size = 10,
                 .mean = {full->mean().begin(), full->mean().end()},
                 .stddev = {full->stddev().begin(), full->stddev().end()}}),
        full_(std::move(full)) {}

 private:
  static constexpr int64_t kSide = 14;

  Status ReadRecord(Split split, int64_t index, std::span<uint8_t> image,
                    int32_t* label) const override {
    std::array<uint8_t, 4 * kSide * kSide> all;
    const Status status = full_->Read(split, index, all, label);
    for (size_t i = 0; i < image.size(); ++i) {
      image[i] = all[i / kSide * 4 * kSide + i % kSide * 2];
    }
    return status;
  }

  std::unique_ptr<Dataset> full_;
};

}  // namespace thimble::testing
