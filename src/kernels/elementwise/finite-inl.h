// SPDX-License-Identifier: Apache-2.0
//
// Whether stored values are finite, without converting them. Included once per
// SIMD target, after <hwy/highway.h>; hence no `#pragma once`.
#if defined(THIMBLE_KERNELS_FINITE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef THIMBLE_KERNELS_FINITE_INL_H_
#undef THIMBLE_KERNELS_FINITE_INL_H_
#else
#define THIMBLE_KERNELS_FINITE_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/simd-inl.h"
#include "kernels/stage-inl.h"
#include "kernels/storage.h"
#include "kernels/tensor.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

// The exponent's bits: all of them are set in infinities and NaNs alone.
constexpr uint32_t ExponentBits(float) { return 0x7F800000u; }
constexpr uint16_t ExponentBits(F16) { return 0x7C00; }
constexpr uint16_t ExponentBits(BF16) { return 0x7F80; }

template <class DBitsOf>
HWY_INLINE hn::Vec<DBitsOf> LoadBitsOf(DBitsOf d, const float* p) {
  return hn::BitCast(d, hn::LoadU(hn::RebindToFloat<DBitsOf>(), p));
}
template <class DBitsOf, typename T>
HWY_INLINE hn::Vec<DBitsOf> LoadBitsOf(DBitsOf d, const T* p) {
  return hn::LoadU(d, &p->bits);
}

// The largest exponents are those of what is not finite, so the largest of all
// elements tells.
template <typename T>
HWY_INLINE bool AllFiniteOf(size_t n, const T* x) {
  const hn::ScalableTag<decltype(ExponentBits(T()))> d;
  const size_t lanes = hn::Lanes(d);
  const auto exponent = hn::Set(d, ExponentBits(T()));
  auto largest = hn::Zero(d);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    largest = hn::Max(largest, hn::And(LoadBitsOf(d, x + i), exponent));
  }
  if (i < n) {
    T rest[hn::MaxLanes(d)] = {};
    std::memcpy(rest, x + i, (n - i) * sizeof(T));
    largest = hn::Max(largest, hn::And(LoadBitsOf(d, rest), exponent));
  }
  return hn::AllFalse(d, hn::Eq(largest, exponent));
}

bool AllFiniteRange(size_t n, const ConstTensor& x) {
  bool finite = true;
  WithFloatType(x.dtype(), [&](auto type) HWY_ATTR {
    finite = AllFiniteOf(n, x.As<decltype(type)>());
  });
  return finite;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
