// SPDX-License-Identifier: Apache-2.0
//
// The definition of sums of products of bf16 pairs: scalar, exact to the bit.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/dot/reference.h"

namespace thimble::kernels::dot {

inline float FlushedSum(float a, float b) {
  return Flushed(Flushed(a) + Flushed(b));
}

// One step of a sum over pairs: the second product goes first.
inline float DotStep(float sum, float a0, float b0, float a1, float b1) {
  return FusedMulAdd(a0, b0, FusedMulAdd(a1, b1, sum));
}

// The sum over k < terms of a(k) * b(k), in pairs; an odd one is completed with
// zeros.
template <typename A, typename B>
float DotSum(int64_t terms, const A& a, const B& b) {
  float sum = 0.0f;
  for (int64_t k = 0; k < terms; k += 2) {
    const bool whole = k + 1 < terms;
    sum = DotStep(sum, a(k), b(k), whole ? a(k + 1) : 0.0f,
                  whole ? b(k + 1) : 0.0f);
  }
  return sum;
}

// An element of a matrix product, as partial sums over 256 terms each that are
// added to `addend` one after the other (null: to nothing).
template <typename A, typename B>
float DotProduct(int64_t depth, const A& a, const B& b, const float* addend) {
  constexpr int64_t kTerms = 256;
  float all = 0.0f;
  for (int64_t k = 0; k < depth; k += kTerms) {
    const float part = DotSum(
        std::min(kTerms, depth - k), [&](int64_t i) { return a(k + i); },
        [&](int64_t i) { return b(k + i); });
    if (k == 0) {
      all = addend == nullptr ? part : FlushedSum(*addend, part);
    } else {
      all = FlushedSum(all, part);
    }
  }
  return all;
}

}  // namespace thimble::kernels::dot
