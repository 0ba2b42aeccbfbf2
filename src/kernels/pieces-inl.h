// SPDX-License-Identifier: Apache-2.0
//
// Pieces of a tensor of any storage type as f32, and back: what is stored as
// f32 is worked on where it lies, the rest in a small buffer. So a kernel has
// one f32 form, and a storage type is one more case here. Included once per
// SIMD target, after <hwy/highway.h>; hence no `#pragma once`.
#if defined(THIMBLE_KERNELS_PIECES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef THIMBLE_KERNELS_PIECES_INL_H_
#undef THIMBLE_KERNELS_PIECES_INL_H_
#else
#define THIMBLE_KERNELS_PIECES_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "kernels/elements-inl.h"
#include "kernels/random.h"
#include "kernels/stochastic-inl.h"
#include "kernels/storage.h"
#include "kernels/tensor.h"
#include "thimble/rounding.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

// Elements of a buffer: a few of them stay in the first cache. Whole groups of
// random numbers.
inline constexpr int64_t kPiece = 512;
static_assert(kPiece % kRandomGroup == 0);

// How what does not fit is rounded. Feedback is nearest here: who hands errors
// on has to know them.
struct PieceRounding {
  Rounding rounding;
  RandomAddress random;
};

struct AsIs {
  HWY_INLINE V operator()(V v) const { return v; }
};

// Elements [at, at + n) as f32. REQUIRES: at is a multiple of kRandomGroup; n
// is at most kPiece where `from` is not f32.
inline const float* LoadPiece(ConstTensor from, int64_t at, int64_t n,
                              float* buffer) {
  const ConstTensor piece = from.From(at);
  if (piece.dtype() == DType::kF16) {
    CopyRowAs(n, static_cast<const F16*>(piece.data()), buffer, AsIs());
  } else if (piece.dtype() == DType::kBF16) {
    CopyRowAs(n, static_cast<const BF16*>(piece.data()), buffer, AsIs());
  } else {
    return piece.f32();
  }
  return buffer;
}

// The same of a tensor that is changed: to be given back to StorePiece.
inline float* OpenPiece(Tensor tensor, int64_t at, int64_t n, float* buffer) {
  if (tensor.dtype() == DType::kF32) return tensor.From(at).f32();
  LoadPiece(tensor, at, n, buffer);
  return buffer;
}

template <typename T>
inline void StorePieceAs(int64_t at, int64_t n, const float* values,
                         const PieceRounding& how, T* to) {
  if (how.rounding == Rounding::kStochastic) {
    StoreRowByChance(at, n, how.random, values, to);
  } else {
    CopyRowAs(n, values, to, AsIs());
  }
}

// REQUIRES: `values` is what OpenPiece gave.
inline void StorePiece(const float* values, int64_t at, int64_t n,
                       const PieceRounding& how, Tensor to) {
  const Tensor piece = to.From(at);
  if (piece.dtype() == DType::kF16) {
    StorePieceAs(at, n, values, how, static_cast<F16*>(piece.data()));
  } else if (piece.dtype() == DType::kBF16) {
    StorePieceAs(at, n, values, how, static_cast<BF16*>(piece.data()));
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
