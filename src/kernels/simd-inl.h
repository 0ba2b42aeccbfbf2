// SPDX-License-Identifier: Apache-2.0
//
// Per-target helpers that all kernel families share. Included once per SIMD
// target, after <hwy/highway.h>; hence no `#pragma once`.
#if defined(THIMBLE_KERNELS_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef THIMBLE_KERNELS_SIMD_INL_H_
#undef THIMBLE_KERNELS_SIMD_INL_H_
#else
#define THIMBLE_KERNELS_SIMD_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstring>

// Before a loop over an array of vectors: they are in registers only where
// every index is a constant.
#ifndef THIMBLE_UNROLL
#if defined(__clang__)
#define THIMBLE_UNROLL _Pragma("clang loop unroll(full)")
#else
#define THIMBLE_UNROLL _Pragma("GCC unroll 32")
#endif
#endif

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// The first n < Lanes(d) elements at p, then zeros. Reads nothing past them:
// Highway's MaskedLoad does not promise that without masked instructions, and
// there also wants alignment.
template <class D>
HWY_INLINE hn::Vec<D> LoadFirst(D d, const hn::TFromD<D>* p, size_t n) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  return hn::MaskedLoad(hn::FirstN(d, n), d, p);
#else
  HWY_ALIGN hn::TFromD<D> buffer[hn::MaxLanes(d)] = {};
  std::memcpy(buffer, p, n * sizeof(*p));
  return hn::Load(d, buffer);
#endif
}

// Stores the first n < Lanes(d) lanes at p, and nothing past them.
template <class D>
HWY_INLINE void StoreFirst(hn::Vec<D> v, D d, hn::TFromD<D>* p, size_t n) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  hn::BlendedStore(v, hn::FirstN(d, n), d, p);
#else
  HWY_ALIGN hn::TFromD<D> buffer[hn::MaxLanes(d)];
  hn::Store(v, d, buffer);
  std::memcpy(p, buffer, n * sizeof(*p));
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
