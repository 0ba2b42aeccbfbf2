// SPDX-License-Identifier: Apache-2.0
//
// How kernels number random numbers (base/rng.h). Elements are in groups of 64,
// each with 16 Philox counters: word w of counter j belongs to element 16 w + j
// of its group. A vector of up to 16 lanes then holds neighbouring elements,
// and the order is that of no SIMD target. Plain values.
#pragma once

#include <cstddef>
#include <cstdint>

namespace thimble::kernels {

inline constexpr size_t kRandomBlocks = 16;
inline constexpr size_t kRandomGroup = 4 * kRandomBlocks;

// What the random bits of a tensor are a function of, besides the element.
struct RandomAddress {
  uint64_t seed = 0;
  uint64_t step = 0;
  uint32_t stream = 0;

  // Of the tensor `k` streams further on.
  RandomAddress Next(uint32_t k) const { return {seed, step, stream + k}; }
};

}  // namespace thimble::kernels
