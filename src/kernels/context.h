// SPDX-License-Identifier: Apache-2.0
//
// What a kernel gets besides its tensors: threads to run on and planned
// scratch. A contract header declares the scratch as a pure function of shapes
// and storage types (the maximum over SIMD targets), so that plans do not
// depend on the CPU.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/parallel.h"
#include "base/workspace.h"

namespace thimble::kernels {

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
    return reinterpret_cast<T*>(scratch + RoundUpToAlignment(workspace.shared) +
                                RoundUpToAlignment(workspace.per_thread) *
                                    static_cast<size_t>(thread));
  }
};

}  // namespace thimble::kernels
