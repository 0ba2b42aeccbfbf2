// SPDX-License-Identifier: Apache-2.0
//
// Softmax of one row of f32, where it lies. A NaN or +inf in a row makes all of
// it NaN. Included once per SIMD target, after <hwy/highway.h>; hence no
// `#pragma once`.
#if defined(THIMBLE_KERNELS_SOFTMAX_ROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef THIMBLE_KERNELS_SOFTMAX_ROW_INL_H_
#undef THIMBLE_KERNELS_SOFTMAX_ROW_INL_H_
#else
#define THIMBLE_KERNELS_SOFTMAX_ROW_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <limits>

#include "hwy/contrib/math/math-inl.h"
#include "kernels/elements-inl.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

// exp(x − shift) for x ≤ shift. Highway's Exp turns a NaN into 0; a diverged
// run must show, so it is put back. It comes from a NaN logit in its own lane,
// whatever Max made of it, or from inf − inf.
HWY_INLINE V ShiftedExp(V x, V shift) {
  const V below = hn::Sub(x, shift);
  return hn::IfThenElse(hn::IsNaN(below), below, hn::Exp(D(), below));
}

// What the lanes past the row hold: they lose every maximum and add exp = 0.
HWY_INLINE V LoadLogits(const float* x, size_t n) {
  const D d;
  if (n >= hn::Lanes(d)) return hn::LoadU(d, x);
  return hn::IfThenElse(hn::FirstN(d, n), LoadFirst(d, x, n),
                        hn::Set(d, -std::numeric_limits<float>::infinity()));
}

HWY_INLINE void StoreUpTo(V v, float* p, size_t n) {
  const D d;
  if (n >= hn::Lanes(d)) {
    hn::StoreU(v, d, p);
  } else {
    StoreFirst(v, d, p, n);
  }
}

// What makes a softmax of a logit: exp(x − largest) * inverse.
struct RowSoftmax {
  float largest, inverse;
};

// x becomes exp(x − largest); their sum's inverse is not applied yet.
HWY_INLINE RowSoftmax ExpRow(size_t n, float* x) {
  const D d;
  const size_t lanes = hn::Lanes(d);
  V best = LoadLogits(x, n);
  for (size_t i = lanes; i < n; i += lanes) {
    best = hn::Max(best, LoadLogits(x + i, n - i));
  }
  const V largest = hn::MaxOfLanes(d, best);
  V sum = hn::Zero(d);
  for (size_t i = 0; i < n; i += lanes) {
    const V e = ShiftedExp(LoadLogits(x + i, n - i), largest);
    sum = hn::Add(sum, e);
    StoreUpTo(e, x + i, n - i);
  }
  return {hn::GetLane(largest), 1.0f / hn::GetLane(hn::SumOfLanes(d, sum))};
}

// REQUIRES: n > 0.
HWY_INLINE RowSoftmax SoftmaxRow(size_t n, float* x) {
  const D d;
  const RowSoftmax row = ExpRow(n, x);
  const V inverse = hn::Set(d, row.inverse);
  for (size_t i = 0; i < n; i += hn::Lanes(d)) {
    StoreUpTo(hn::Mul(LoadLogits(x + i, n - i), inverse), x + i, n - i);
  }
  return row;
}

// The same by what SoftmaxRow has found of the whole row, of any part of it.
HWY_INLINE void RepeatSoftmax(const RowSoftmax& row, size_t n, float* x) {
  const D d;
  const V largest = hn::Set(d, row.largest);
  const V inverse = hn::Set(d, row.inverse);
  for (size_t i = 0; i < n; i += hn::Lanes(d)) {
    const V e = ShiftedExp(LoadLogits(x + i, n - i), largest);
    StoreUpTo(hn::Mul(e, inverse), x + i, n - i);
  }
}

// Σ a · b
HWY_INLINE float DotOfRows(size_t n, const float* a, const float* b) {
  const D d;
  const size_t lanes = hn::Lanes(d);
  V sum = hn::Zero(d);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    sum = hn::MulAdd(hn::LoadU(d, a + i), hn::LoadU(d, b + i), sum);
  }
  if (i < n) {
    sum =
        hn::MulAdd(LoadFirst(d, a + i, n - i), LoadFirst(d, b + i, n - i), sum);
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
