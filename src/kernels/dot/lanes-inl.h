// SPDX-License-Identifier: Apache-2.0
//
// What kernels with dot products are made of: 16 lanes of f32 (Floats) or of 32
// bits (Words), which hold pairs of bf16. Included once per build, by way of
// foreach_build.h; hence no `#pragma once`.
//
//   ZeroFloats() SetFloats(v)  LoadFloats(p)  Store(v, p)
//   ZeroWords()  SetWords(v)   LoadWords(p)   Store(v, p)    any alignment
//   SetPair(p)                 every lane is the pair at p
//   LoadHalves(p, q)     LoadQuarters(p, q, r, s)     from 32 bytes at each, or
//   StoreHalves(v, p, q) StoreQuarters(v, p, q, r, s) 16
//   LoadEvenQuarters(p, first, last)  quarters 0, 2, 4, 6 of eight at p; of
//   both LoadOddQuarters(p, first, last)   vectors, what the masks say is read,
//   and
//                              zero is there for the rest. Odd: 1, 3, 5, 7
//   LoadNineWords(p)           nothing is read past them; zeros for the rest
//   Add Sub Mul FusedMulAdd(a, b, c) = a * b + c rounded once
//   ZeroIfNegative(v) AtLeast(bound, v)        a NaN stays
//   IfPositive(u, v)           v where u > 0, else zero
//   Masked(mask, w)            zero where the bit of MaskOf(bits) was
//   MaskedMulAdd(mask, a, b, c)  the same of a * b + c
//   Even(w) Odd(w)             the lower, the upper of each pair, in f32
//   PackEven(v, w) PackOdd(v, w)  the lower, the upper of each pair as they
//                              are, those of v first
//   Dot(sum, x, w)             dot_form.h says what it is
//   DotPair(sum, x, p)         the same with SetPair(p), in one instruction
//   Round(low, high)           32 bf16, those of `low` first
//   Zip(low, high)             pairs (low, high), rounded
//   ZipHalves(even, odd)       the same of lanes (i, i + 8), i < 8: first of
//                              `even`, then of `odd`, then of `even` for i + 1
//   StoreInterleaved(even, odd, p, q)  16 floats at p and at q
//   FromBefore<kRow>(v)        lane i is lane i - 1, and zero where a row of
//   FromBehind<kRow>(v)        kRow lanes begins (i + 1, ends); 16, 8 or 4
//   Transpose16(r)             of 16x16 lanes
//   TransposePairs8(r)         of 8x8 pairs of lanes
//
// Rounding is to nearest even; denormals become zeros, NaNs quiet. REQUIRES: a
// FlushDenormals is alive.
#if defined(THIMBLE_KERNELS_DOT_LANES_INL_H_) == defined(THIMBLE_DOT_TOGGLE)
#ifdef THIMBLE_KERNELS_DOT_LANES_INL_H_
#undef THIMBLE_KERNELS_DOT_LANES_INL_H_
#else
#define THIMBLE_KERNELS_DOT_LANES_INL_H_
#endif

// GCC's own code for "any value" reads a variable that was not set.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

#include <cstddef>
#include <cstdint>
#include <cstring>

#ifndef THIMBLE_DOT_INLINE
#define THIMBLE_DOT_INLINE static inline __attribute__((always_inline, unused))
// Before a loop over an array of vectors: they are in registers only where
// every index is a constant.
#if defined(__clang__)
#define THIMBLE_DOT_UNROLL _Pragma("clang loop unroll(full)")
#else
#define THIMBLE_DOT_UNROLL _Pragma("GCC unroll 32")
#endif
#endif

THIMBLE_DOT_BEGIN

inline constexpr int64_t kLanes = 16;

#if THIMBLE_DOT_IS_AVX2
#include "kernels/dot/lanes_avx2-inl.h"
#else
#include "kernels/dot/lanes_avx512-inl.h"
#endif

THIMBLE_DOT_END

#endif  // per-build include guard
