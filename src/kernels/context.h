// SPDX-License-Identifier: Apache-2.0
//
// What a kernel gets besides its tensors: threads to run on and planned scratch.
// A contract header declares the scratch as a pure function of the shape (the
// maximum over SIMD targets), so that plans do not depend on the CPU.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/parallel.h"

namespace thimble::kernels {

// Scratch that dies with the call. Both parts are 64-byte aligned; their content
// on entry is undefined.
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

struct KernelContext {
  ThreadPool* pool = nullptr;
  std::byte* scratch = nullptr;  // TotalBytes(workspace, pool->threads())
  Workspace workspace;           // what was planned, for the layout below

  // The part that all threads share.
  template <typename T>
  T* Shared() const {
    return reinterpret_cast<T*>(scratch);
  }
  // The part of thread `thread` alone.
  template <typename T>
  T* PerThread(int thread) const {
    return reinterpret_cast<T*>(
        scratch + RoundUpToAlignment(workspace.shared) +
        RoundUpToAlignment(workspace.per_thread) * static_cast<size_t>(thread));
  }
};

}  // namespace thimble::kernels
