// SPDX-License-Identifier: Apache-2.0
//
// Loops over neighbouring elements of any storage type. Included once per SIMD
// target, after <hwy/highway.h>; hence no `#pragma once`.
#if defined(THIMBLE_KERNELS_ELEMENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef THIMBLE_KERNELS_ELEMENTS_INL_H_
#undef THIMBLE_KERNELS_ELEMENTS_INL_H_
#else
#define THIMBLE_KERNELS_ELEMENTS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "kernels/convert-inl.h"
#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

HWY_INLINE int64_t LaneCount() { return static_cast<int64_t>(hn::Lanes(D())); }

// values[i] = f(values[i], other[i]) over [0, n).
template <typename T, typename F>
HWY_INLINE void MapRow(int64_t n, const T* other, float* values, const F& f) {
  const D d;
  const int64_t lanes = LaneCount();
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const V v = f(hn::LoadU(d, values + i), LoadAs(d, other + i));
    hn::StoreU(v, d, values + i);
  }
  if (i == n) return;
  const auto rest = static_cast<size_t>(n - i);
  const V v =
      f(LoadFirst(d, values + i, rest), LoadFirstAs(d, other + i, rest));
  StoreFirst(v, d, values + i, rest);
}

// to[i] = f(from[i]) over [0, n), each in its type.
template <typename From, typename To, typename F>
HWY_INLINE void CopyRowAs(int64_t n, const From* from, To* to, const F& f) {
  const D d;
  const int64_t lanes = LaneCount();
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    StoreAs(f(LoadAs(d, from + i)), d, to + i);
  }
  if (i == n) return;
  const auto rest = static_cast<size_t>(n - i);
  StoreFirstAs(f(LoadFirstAs(d, from + i, rest)), d, to + i, rest);
}

// y[i] = f(in[i]...) over [0, n), each in its type: whole vectors, then a
// masked one, so that nothing past n is read or written.
template <typename F, typename Out, typename... In>
HWY_INLINE void Map(size_t n, const F& f, Out* y, const In*... in) {
  const D d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    StoreAs(f(LoadAs(d, in + i)...), d, y + i);
  }
  if (i == n) return;
  StoreFirstAs(f(LoadFirstAs(d, in + i, n - i)...), d, y + i, n - i);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
