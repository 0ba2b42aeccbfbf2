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

#include "kernels/blocks-inl.h"
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
// on has to know them. Blocks are always rounded by chance.
struct PieceRounding {
  Rounding rounding;
  RandomAddress random;
};

struct AsIs {
  HWY_INLINE V operator()(V v) const { return v; }
};

inline void LoadBlocks(BlockCoding coding, ConstTensor from, int64_t n,
                       float* values) {
  constexpr auto kBlock = static_cast<int64_t>(kBlockValues);
  const auto* codes = static_cast<const uint8_t*>(from.data());
  for (int64_t i = 0; i < n; i += kBlock) {
    DecodeBlock(coding, static_cast<size_t>(HWY_MIN(kBlock, n - i)), codes + i,
                {from.scales()[i / kBlock]}, values + i);
  }
}

inline void StoreBlocks(BlockCoding coding, const float* values, int64_t at,
                        int64_t n, const RandomAddress& random, Tensor to) {
  constexpr auto kBlock = static_cast<int64_t>(kBlockValues);
  auto* codes = static_cast<uint8_t*>(to.data());
  const PhiloxKeys keys(random.seed);
  for (int64_t i = 0; i < n; i += kBlock) {
    BF16 scale;
    EncodeBlock(coding, static_cast<size_t>(HWY_MIN(kBlock, n - i)), values + i,
                keys, random, (at + i) / kBlock, codes + i, &scale);
    to.scales()[i / kBlock] = scale.bits;
  }
}

// Elements [at, at + n) as f32. `coding` is of blocks alone. REQUIRES: at is a
// multiple of kRandomGroup; n is at most kPiece where `from` is not f32.
inline const float* LoadPiece(ConstTensor from, int64_t at, int64_t n,
                              float* buffer,
                              BlockCoding coding = BlockCoding::kSigned) {
  const ConstTensor piece = from.From(at);
  if (piece.is_in_blocks()) {
    LoadBlocks(coding, piece, n, buffer);
  } else if (piece.dtype() == DType::kF16) {
    CopyRowAs(n, static_cast<const F16*>(piece.data()), buffer, AsIs());
  } else if (piece.dtype() == DType::kBF16) {
    CopyRowAs(n, static_cast<const BF16*>(piece.data()), buffer, AsIs());
  } else {
    return piece.f32();
  }
  return buffer;
}

// The same of a tensor that is changed: to be given back to StorePiece.
inline float* OpenPiece(Tensor tensor, int64_t at, int64_t n, float* buffer,
                        BlockCoding coding = BlockCoding::kSigned) {
  if (tensor.dtype() == DType::kF32) return tensor.From(at).f32();
  LoadPiece(tensor, at, n, buffer, coding);
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
                       const PieceRounding& how, Tensor to,
                       BlockCoding coding = BlockCoding::kSigned) {
  const Tensor piece = to.From(at);
  if (piece.is_in_blocks()) {
    StoreBlocks(coding, values, at, n, how.random, piece);
  } else if (piece.dtype() == DType::kF16) {
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
