// SPDX-License-Identifier: Apache-2.0
//
// Sums of exponentials over a row of f32. Included once per SIMD target, after
// <hwy/highway.h>; hence no `#pragma once`.
#if defined(THIMBLE_KERNELS_SOFTMAX_ROW_SUMS_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef THIMBLE_KERNELS_SOFTMAX_ROW_SUMS_INL_H_
#undef THIMBLE_KERNELS_SOFTMAX_ROW_SUMS_INL_H_
#else
#define THIMBLE_KERNELS_SOFTMAX_ROW_SUMS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>

#include "kernels/elements-inl.h"
#include "kernels/softmax_row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

using Wide = hn::Repartition<double, D>;
using WideV = hn::Vec<Wide>;
using Half = hn::Half<D>;

HWY_INLINE float LargestOf(size_t n, const float* x) {
  constexpr size_t kChains = 4;
  const D d;
  const size_t lanes = hn::Lanes(d);
  V best = LoadLogits(x, n);
  size_t i = lanes;
  if (n >= 2 * kChains * lanes) {
    V chains[kChains] = {best, best, best, best};
    for (; i + kChains * lanes <= n; i += kChains * lanes) {
      THIMBLE_UNROLL
      for (size_t k = 0; k < kChains; ++k) {
        chains[k] = hn::Max(chains[k], hn::LoadU(d, x + i + k * lanes));
      }
    }
    best =
        hn::Max(hn::Max(chains[0], chains[1]), hn::Max(chains[2], chains[3]));
  }
  for (; i < n; i += lanes) best = hn::Max(best, LoadLogits(x + i, n - i));
  return hn::GetLane(hn::MaxOfLanes(d, best));
}

HWY_INLINE WideV AddWide(WideV sum, V v) {
  const Wide dw;
  const WideV lower = hn::PromoteTo(dw, hn::LowerHalf(Half(), v));
  const WideV upper = hn::PromoteTo(dw, hn::UpperHalf(Half(), v));
  return hn::Add(sum, hn::Add(lower, upper));
}

// Σ exp(x − shift), with each term also handed to visit(position, term).
template <typename F>
HWY_INLINE double SumOfExp(size_t n, const float* x, float shift,
                           const F& visit) {
  const D d;
  const Wide dw;
  const size_t lanes = hn::Lanes(d);
  const V top = hn::Set(d, shift);
  WideV sum = hn::Zero(dw);
  size_t i = 0;
  // Several at a time: a function is a long chain of instructions.
  constexpr size_t kVectors = 4;
  for (; i + kVectors * lanes <= n; i += kVectors * lanes) {
    V e[kVectors];
    THIMBLE_UNROLL
    for (size_t k = 0; k < kVectors; ++k) {
      e[k] = ShiftedExp(hn::LoadU(d, x + i + k * lanes), top);
    }
    THIMBLE_UNROLL
    for (size_t k = 0; k < kVectors; ++k) {
      visit(i + k * lanes, e[k]);
      sum = AddWide(sum, e[k]);
    }
  }
  for (; i < n; i += lanes) {
    const V e = ShiftedExp(LoadLogits(x + i, n - i), top);
    visit(i, e);
    sum = AddWide(sum, e);
  }
  return hn::GetLane(hn::SumOfLanes(dw, sum));
}

// terms = exp(x − shift); their sum. In place on x.
HWY_INLINE double StoreExp(size_t n, const float* x, float shift,
                           float* terms) {
  const D d;
  return SumOfExp(n, x, shift, [=](size_t i, V e) HWY_ATTR {
    const size_t left = n - i;
    if (left >= hn::Lanes(d)) {
      hn::StoreU(e, d, terms + i);
    } else {
      StoreFirst(e, d, terms + i, left);
    }
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
