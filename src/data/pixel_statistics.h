// SPDX-License-Identifier: Apache-2.0
//
// PixelStatistics: exact mean and deviation of a stream of bytes. Sums are
// integers, so they do not depend on how the stream is cut. One thread.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>

namespace thimble {

class PixelStatistics {
 public:
  void Add(std::span<const uint8_t> pixels) {
    for (const uint64_t pixel : pixels) {
      sum_ += pixel;
      squares_ += pixel * pixel;
    }
    count_ += pixels.size();
  }

  // REQUIRES, for both: something was added.
  float mean() const {
    return static_cast<float>(static_cast<double>(sum_) /
                              static_cast<double>(count_));
  }
  // 1 where all pixels are alike, so that dividing by it is safe.
  float stddev() const {
    // count^2 * variance, exact in 128 bits: nothing cancels.
    const auto scaled = static_cast<unsigned __int128>(squares_) * count_ -
                        static_cast<unsigned __int128>(sum_) * sum_;
    if (scaled == 0) return 1.0f;
    return static_cast<float>(std::sqrt(static_cast<double>(scaled)) /
                              static_cast<double>(count_));
  }

 private:
  uint64_t sum_ = 0;
  uint64_t squares_ = 0;
  uint64_t count_ = 0;
};

}  // namespace thimble
