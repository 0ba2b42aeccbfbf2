// SPDX-License-Identifier: Apache-2.0
//
// Workspace: how much planned scratch an op's kernel takes, and the alignment
// that every planned buffer has.
#pragma once

#include <cstddef>

namespace thimble {

// Scratch that dies with the call. Both parts are 64-byte aligned; their
// content on entry is undefined.
struct Workspace {
  size_t per_thread = 0;  // bytes for each thread of the pool
  size_t shared = 0;      // bytes for all threads together

  friend bool operator==(const Workspace&, const Workspace&) = default;
};

inline constexpr size_t kAlignment = 64;

constexpr size_t RoundUpToAlignment(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Bytes that a Workspace takes in the arena for `threads` threads.
constexpr size_t TotalBytes(const Workspace& workspace, int threads) {
  return RoundUpToAlignment(workspace.shared) +
         RoundUpToAlignment(workspace.per_thread) *
             static_cast<size_t>(threads);
}

}  // namespace thimble
