// SPDX-License-Identifier: Apache-2.0
//
// Transposition of f32 matrices, which also serves other families. Included
// once per SIMD target, after <hwy/highway.h>; hence no `#pragma once`.
#if defined(THIMBLE_KERNELS_TRANSPOSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef THIMBLE_KERNELS_TRANSPOSE_INL_H_
#undef THIMBLE_KERNELS_TRANSPOSE_INL_H_
#else
#define THIMBLE_KERNELS_TRANSPOSE_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>

#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {

// A 4x4 block, of which the rows are 128-bit vectors on every target.
HWY_INLINE void Transpose4x4(const float* from, size_t from_stride, float* to,
                             size_t to_stride) {
  const hn::FixedTag<float, 4> d;
  const hn::FixedTag<double, 2> wide;
  const auto r0 = hn::LoadU(d, from);
  const auto r1 = hn::LoadU(d, from + from_stride);
  const auto r2 = hn::LoadU(d, from + 2 * from_stride);
  const auto r3 = hn::LoadU(d, from + 3 * from_stride);
  // Pairs (r0, r1) and (r2, r3) of columns 0, 1 and 2, 3.
  const auto low01 = hn::BitCast(wide, hn::InterleaveLower(d, r0, r1));
  const auto low23 = hn::BitCast(wide, hn::InterleaveLower(d, r2, r3));
  const auto high01 = hn::BitCast(wide, hn::InterleaveUpper(d, r0, r1));
  const auto high23 = hn::BitCast(wide, hn::InterleaveUpper(d, r2, r3));
  const auto store = [&](auto v, size_t row) HWY_ATTR {
    hn::StoreU(hn::BitCast(d, v), d, to + row * to_stride);
  };
  store(hn::InterleaveLower(wide, low01, low23), 0);
  store(hn::InterleaveUpper(wide, low01, low23), 1);
  store(hn::InterleaveLower(wide, high01, high23), 2);
  store(hn::InterleaveUpper(wide, high01, high23), 3);
}

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
// Four columns of eight rows: rows four apart lie in the 128-bit blocks of one
// vector. Not sixteen rows: a cache set has as few as eight ways.
HWY_INLINE void Transpose8x4(const float* from, size_t from_stride, float* to,
                             size_t to_stride) {
  const hn::FixedTag<float, 8> d;
  const hn::FixedTag<float, 4> half;
  const hn::FixedTag<double, 4> wide;
  const auto row = [&](size_t r) HWY_ATTR {
    const float* at = from + r * from_stride;
    return hn::Combine(d, hn::LoadU(half, at + 4 * from_stride),
                       hn::LoadU(half, at));
  };
  const auto r0 = row(0), r1 = row(1), r2 = row(2), r3 = row(3);
  const auto low01 = hn::BitCast(wide, hn::InterleaveLower(d, r0, r1));
  const auto low23 = hn::BitCast(wide, hn::InterleaveLower(d, r2, r3));
  const auto high01 = hn::BitCast(wide, hn::InterleaveUpper(d, r0, r1));
  const auto high23 = hn::BitCast(wide, hn::InterleaveUpper(d, r2, r3));
  const auto store = [&](auto v, size_t row) HWY_ATTR {
    hn::StoreU(hn::BitCast(d, v), d, to + row * to_stride);
  };
  store(hn::InterleaveLower(wide, low01, low23), 0);
  store(hn::InterleaveUpper(wide, low01, low23), 1);
  store(hn::InterleaveLower(wide, high01, high23), 2);
  store(hn::InterleaveUpper(wide, high01, high23), 3);
}
#endif

// Columns [begin, end) of `rows` rows, both multiples of four.
inline void TransposeColumns(size_t rows, size_t begin, size_t end,
                             const float* from, size_t from_stride, float* to,
                             size_t to_stride) {
  size_t r = 0;
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  for (; r + 8 <= rows; r += 8) {
    for (size_t c = begin; c < end; c += 4) {
      Transpose8x4(from + r * from_stride + c, from_stride,
                   to + c * to_stride + r, to_stride);
    }
  }
#endif
  for (; r + 4 <= rows; r += 4) {
    for (size_t c = begin; c < end; c += 4) {
      Transpose4x4(from + r * from_stride + c, from_stride,
                   to + c * to_stride + r, to_stride);
    }
  }
}

// to[c * to_stride + r] = from[r * from_stride + c]. Columns go outside in
// groups of 16, a cache line: rows a power of two apart share a cache set, and
// a line must be used up while it is there.
inline void Transpose(size_t rows, size_t cols, const float* from,
                      size_t from_stride, float* to, size_t to_stride) {
  const size_t whole_rows = rows / 4 * 4;
  const size_t whole_cols = cols / 4 * 4;
  for (size_t group = 0; group < whole_cols; group += 16) {
    TransposeColumns(whole_rows, group, HWY_MIN(group + 16, whole_cols), from,
                     from_stride, to, to_stride);
  }
  // At most three columns, then at most three rows, are left.
  for (size_t c = whole_cols; c < cols; ++c) {
    for (size_t r = 0; r < whole_rows; ++r) {
      to[c * to_stride + r] = from[r * from_stride + c];
    }
  }
  for (size_t r = whole_rows; r < rows; ++r) {
    for (size_t c = 0; c < cols; ++c) {
      to[c * to_stride + r] = from[r * from_stride + c];
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
