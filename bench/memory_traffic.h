// SPDX-License-Identifier: Apache-2.0
//
// The machine's other limit besides arithmetic (fma_peak.h): bytes. What a
// kernel that only reads, writes or copies so many bytes would take.
#pragma once

#include <cstddef>
#include <vector>

#include "base/parallel.h"

namespace thimble::bench {

enum class Traffic { kRead, kWrite, kCopy };

// One pass over `bytes` of memory on the active SIMD target, shared between the
// threads of a pool; a copy reads half of them and writes the other half. The
// pool must outlive it.
class TrafficRun {
 public:
  TrafficRun(Traffic traffic, size_t bytes, ThreadPool* pool);
  void Run();

 private:
  Traffic traffic_;
  ThreadPool* pool_;
  std::vector<float> values_;
  std::vector<float> sums_;  // one per thread, far from each other
};

}  // namespace thimble::bench
