// SPDX-License-Identifier: Apache-2.0
//
// Pieces of tensors of any float type as f32, so that a kernel has one form for
// all of them: what is stored as f32 is used where it lies, the rest goes
// through a line on the stack. A value is rounded once, where it is written
// back. Included once per SIMD target, after <hwy/highway.h>; hence no `#pragma
// once`.
#if defined(THIMBLE_KERNELS_STAGE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef THIMBLE_KERNELS_STAGE_INL_H_
#undef THIMBLE_KERNELS_STAGE_INL_H_
#else
#define THIMBLE_KERNELS_STAGE_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "kernels/elements-inl.h"
#include "kernels/storage.h"
#include "kernels/tensor.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

// n elements from `offset` on, into `line`.
inline void Widen(const ConstTensor& from, int64_t offset, int64_t n,
                  float* line) {
  WithFloatType(from.dtype(), [&](auto type) HWY_ATTR {
    using T = decltype(type);
    CopyRowAs(n, from.As<T>() + offset, line, [](V v) HWY_ATTR { return v; });
  });
}

// n elements from `offset` on: where they lie, or in `line`.
HWY_INLINE const float* ReadPiece(const ConstTensor& from, int64_t offset,
                                  int64_t n, float* line) {
  if (from.dtype() == DType::kF32) return from.f32() + offset;
  Widen(from, offset, n, line);
  return line;
}

// Where to make the elements from `offset` on: where they will lie, or `line`.
// WritePiece then brings them there.
HWY_INLINE float* PieceToWrite(const Tensor& to, int64_t offset, float* line) {
  return to.dtype() == DType::kF32 ? to.f32() + offset : line;
}

// n elements that were made at `piece`, to `offset` of `to`; nothing if they
// were made there.
inline void WritePiece(int64_t n, const float* piece, const Tensor& to,
                       int64_t offset) {
  WithFloatType(to.dtype(), [&](auto type) HWY_ATTR {
    using T = decltype(type);
    T* at = to.As<T>() + offset;
    if (static_cast<const void*>(at) == piece) return;
    CopyRowAs(n, piece, at, [](V v) HWY_ATTR { return v; });
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
