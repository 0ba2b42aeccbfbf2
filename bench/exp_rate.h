// SPDX-License-Identifier: Apache-2.0
//
// A third limit besides arithmetic (fma_peak.h) and bytes (memory_traffic.h):
// exponentials, of which softmax and the gates of an LSTM are made.
#pragma once

#include <vector>

#include "base/parallel.h"

namespace thimble::bench {

// Exponentials of values in the first-level cache on the active SIMD target, by
// the function that our kernels use, on each thread of a pool. The pool must
// outlive it.
class ExpRun {
 public:
  static constexpr int kValues = 2048;  // of one thread
  static constexpr int kRounds = 16;

  explicit ExpRun(ThreadPool* pool);
  void Run();
  // Of one Run, over all threads.
  double exps() const;

 private:
  ThreadPool* pool_;
  std::vector<float> from_, to_;
};

}  // namespace thimble::bench
