// SPDX-License-Identifier: Apache-2.0
//
// Pieces of a tensor as f32, and back, as kernels/stage-inl.h has them, for
// what updates store besides: blocks of 8 bits, and values rounded by chance.
// Included once per SIMD target, after <hwy/highway.h>; hence no `#pragma
// once`.
#if defined(THIMBLE_KERNELS_PIECES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef THIMBLE_KERNELS_PIECES_INL_H_
#undef THIMBLE_KERNELS_PIECES_INL_H_
#else
#define THIMBLE_KERNELS_PIECES_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "kernels/blocks-inl.h"
#include "kernels/random.h"
#include "kernels/stage-inl.h"
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

inline void LoadBlocks(BlockCoding coding, ConstTensor from, int64_t n,
                       float* values) {
  constexpr auto kBlock = static_cast<int64_t>(kBlockValues);
  const uint8_t* codes = from.codes();
  for (int64_t i = 0; i < n; i += kBlock) {
    DecodeBlock(coding, static_cast<size_t>(HWY_MIN(kBlock, n - i)), codes + i,
                {from.scales()[i / kBlock]}, values + i);
  }
}

inline void StoreBlocks(BlockCoding coding, const float* values, int64_t at,
                        int64_t n, const RandomAddress& random, Tensor to) {
  constexpr auto kBlock = static_cast<int64_t>(kBlockValues);
  uint8_t* codes = to.codes();
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
  if (!from.is_in_blocks()) return ReadPiece(from, at, n, buffer);
  LoadBlocks(coding, from.From(at), n, buffer);
  return buffer;
}

// The same of a tensor that is changed: to be given back to StorePiece.
inline float* OpenPiece(Tensor tensor, int64_t at, int64_t n, float* buffer,
                        BlockCoding coding = BlockCoding::kSigned) {
  if (tensor.dtype() == DType::kF32) return tensor.From(at).f32();
  LoadPiece(tensor, at, n, buffer, coding);
  return buffer;
}

// REQUIRES: `values` is what OpenPiece gave.
inline void StorePiece(const float* values, int64_t at, int64_t n,
                       const PieceRounding& how, Tensor to,
                       BlockCoding coding = BlockCoding::kSigned) {
  if (to.dtype() == DType::kF32) return;  // worked on where it lies
  const Tensor piece = to.From(at);
  if (piece.is_in_blocks()) {
    StoreBlocks(coding, values, at, n, how.random, piece);
  } else if (how.rounding != Rounding::kStochastic) {
    WritePiece(n, values, to, at);
  } else if (piece.dtype() == DType::kF16) {
    StoreRowByChance(at, n, how.random, values, piece.As<F16>());
  } else if (piece.dtype() == DType::kBF16) {
    StoreRowByChance(at, n, how.random, values, piece.As<BF16>());
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
