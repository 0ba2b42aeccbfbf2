// SPDX-License-Identifier: Apache-2.0
//
// Tiles of sparse convolutions by dot products (sparse_pass.h): lines of 32
// positions. Pure functions of the shape. Internal to convolutions.
#pragma once

#include <cstdint>

namespace thimble::kernels::dot {

inline constexpr int64_t kLinePixels = 32;
inline constexpr int64_t kLineBytes = 64;
inline constexpr int64_t kOffsetUnit = 8;  // bytes: x86 scales an index by 8
inline constexpr int64_t kSlots = 3;       // of a phase
inline constexpr int64_t kMostSegments = 4;
inline constexpr int64_t kMostLines = 17;
inline constexpr int64_t kMostTaps = 9;

inline constexpr int64_t kSlotBefore = 0;
inline constexpr int64_t kSlotBehind = 1;
inline constexpr int64_t kSlotHere = 2;

struct SparseTap {
  int32_t slot;  // of all phases
  int32_t line;  // of the first position's row
};

// Lines of a channel: line l is the source's row step * (first row of the
// segment) + row_of[l].
struct SparseTile {
  int64_t height = 0;  // rows of positions
  int64_t lines = 0;   // of a plane
  int64_t planes = 1;
  int64_t row_of[kMostLines] = {};

  int64_t plane_bytes(int64_t channels) const {
    return channels * lines * kLineBytes;
  }
  int64_t bytes(int64_t channels) const {
    return planes * plane_bytes(channels);
  }
};

}  // namespace thimble::kernels::dot
