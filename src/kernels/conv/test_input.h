// SPDX-License-Identifier: Apache-2.0
//
// Test only: random inputs of convolutions, and how many values each tensor has
// for one image.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/conv/conv.h"
#include "kernels/testing.h"

namespace thimble::kernels::testing {

inline size_t InputSize(const Conv2dShape& s) {
  return static_cast<size_t>(s.in_channels * s.in_height * s.in_width);
}
inline size_t OutputSize(const Conv2dShape& s) {
  return static_cast<size_t>(s.out_channels * s.out_height() * s.out_width());
}
inline size_t WeightSize(const Conv2dShape& s) {
  return static_cast<size_t>(s.out_channels * s.in_channels * s.kernel_h *
                             s.kernel_w);
}

// An input that ends where its allocation ends, so that AddressSanitizer sees a
// read past it, at a chosen misalignment.
class Input {
 public:
  Input(size_t n, size_t misalign, uint64_t seed)
      : values_(n + misalign), misalign_(misalign) {
    FillRandom(std::span(values_).subspan(misalign), seed);
  }
  const float* data() const { return values_.data() + misalign_; }
  size_t size() const { return values_.size() - misalign_; }
  std::vector<double> Wide() const { return {data(), data() + size()}; }
  std::vector<double> Magnitudes() const {
    std::vector<double> result = Wide();
    for (double& value : result) value = std::abs(value);
    return result;
  }

 private:
  std::vector<float> values_;
  size_t misalign_;
};

}  // namespace thimble::kernels::testing
