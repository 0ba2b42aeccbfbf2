// SPDX-License-Identifier: Apache-2.0
//
// The dot-product instruction flushes denormals whatever the CPU's modes are.
// All else that a kernel with dot products computes does so too, and emulated
// products with it, while one of these is alive on the thread.
#pragma once

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace thimble::kernels {

#if defined(__x86_64__)

class FlushDenormals {
 public:
  FlushDenormals() : before_(_mm_getcsr()) {
    constexpr unsigned kFlushResults = 1u << 15;
    constexpr unsigned kZeroOperands = 1u << 6;
    _mm_setcsr(before_ | kFlushResults | kZeroOperands);
  }
  ~FlushDenormals() { _mm_setcsr(before_); }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
  unsigned before_;
};
#else  // other CPUs have no dot products
class FlushDenormals {
 public:
  FlushDenormals() {}
  ~FlushDenormals() {}
};
#endif

}  // namespace thimble::kernels
