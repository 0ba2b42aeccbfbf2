// SPDX-License-Identifier: Apache-2.0
//
// A third limit besides arithmetic (fma_peak.h) and bytes (memory_traffic.h):
// exponentials and hyperbolic tangents, of which softmax and the gates of an
// LSTM are made.
#pragma once

#include <vector>

#include "base/parallel.h"

namespace thimble::bench {

enum class Function { kExp, kTanh };

// A function of values in the first-level cache on the active SIMD target, as
// our kernels compute it, on each thread of a pool. The pool must outlive it.
class FunctionRun {
 public:
  FunctionRun(Function function, ThreadPool* pool);
  void Run();
  // Values that one Run computes on so many threads.
  static double Values(int threads) {
    return static_cast<double>(kRounds) * kValues * threads;
  }

 private:
  static constexpr int kValues = 2048;  // of one thread
  static constexpr int kRounds = 16;

  Function function_;
  ThreadPool* pool_;
  std::vector<float> from_, to_;
};

}  // namespace thimble::bench
