// SPDX-License-Identifier: Apache-2.0
//
// How large a network's values may be. Pure functions.
#pragma once

#include <cstdint>

namespace thimble {

// Extents and products stay far below this; larger ones are typing errors, and
// refusing them at once keeps every later product of sizes from overflowing.
inline constexpr int64_t kMaxExtent = int64_t{1} << 24;
inline constexpr int64_t kMaxElements = int64_t{1} << 38;

inline bool InRange(int64_t extent) {
  return extent >= 1 && extent <= kMaxExtent;
}

}  // namespace thimble
