// SPDX-License-Identifier: Apache-2.0
//
// Values of 8 bits in blocks of 64 with a scale in bf16 (thimble/storage.h):
// the one function that reads a block and the one that writes it. Included once
// per SIMD target, after <hwy/highway.h>; hence no `#pragma once`.
#if defined(THIMBLE_KERNELS_BLOCKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef THIMBLE_KERNELS_BLOCKS_INL_H_
#undef THIMBLE_KERNELS_BLOCKS_INL_H_
#else
#define THIMBLE_KERNELS_BLOCKS_INL_H_
#endif

#include <hwy/highway.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/blocks.h"
#include "kernels/philox-inl.h"
#include "kernels/stochastic-inl.h"
#include "kernels/storage.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {

// values[i] = what block codes[0, n) stands for.
HWY_INLINE void DecodeBlock(BlockCoding coding, size_t n, const uint8_t* codes,
                            BF16 scale, float* values) {
  const DRandom d;
  const hn::RebindToSigned<DRandom> di;
  const hn::Rebind<uint8_t, DRandom> db;
  const size_t lanes = hn::Lanes(d);
  const auto step =
      hn::Set(d, std::bit_cast<float>(static_cast<uint32_t>(scale.bits) << 16));
  for (size_t i = 0; i < n; i += lanes) {
    const size_t some = HWY_MIN(lanes, n - i);
    uint8_t buffer[hn::MaxLanes(d)] = {};
    std::memcpy(buffer, codes + i, some);
    auto code = hn::PromoteTo(di, hn::LoadU(db, buffer));
    if (coding == BlockCoding::kSigned) {
      code = hn::ShiftRight<24>(hn::ShiftLeft<24>(code));
    }
    const auto root = hn::Mul(hn::ConvertTo(d, code), step);
    const auto value =
        coding == BlockCoding::kSigned ? root : hn::Mul(root, root);
    if (some == lanes) {
      hn::StoreU(value, d, values + i);
    } else {
      StoreFirst(value, d, values + i, some);
    }
  }
}

// The bits of the largest magnitude; NaNs are above infinity.
HWY_INLINE uint32_t LargestOfBlock(size_t n, const float* values) {
  const DRandom d;
  const DBits du;
  const size_t lanes = hn::Lanes(d);
  VBits most = hn::Zero(du);
  for (size_t i = 0; i < n; i += lanes) {
    const auto v = i + lanes <= n ? hn::LoadU(d, values + i)
                                  : LoadFirst(d, values + i, n - i);
    most = hn::Max(most, hn::BitCast(du, hn::Abs(v)));
  }
  HWY_ALIGN uint32_t each[hn::MaxLanes(du)];
  hn::Store(most, du, each);
  uint32_t largest = 0;
  for (size_t i = 0; i < lanes; ++i) largest = HWY_MAX(largest, each[i]);
  return largest;
}

// Codes of magnitudes in units of the scale, at most `top`: q rounded by
// chance. Of square roots the chance is that of the squares, so that it is
// these whose mean is exact.
HWY_INLINE hn::Vec<hn::RebindToSigned<DRandom>> CodesByChance(
    BlockCoding coding, hn::Vec<DRandom> q, VBits random) {
  const DRandom d;
  const hn::RebindToSigned<DRandom> di;
  const auto whole = hn::ConvertTo(di, q);
  const auto below = hn::ConvertTo(d, whole);
  auto share = hn::Sub(q, below);
  if (coding == BlockCoding::kSquareRoot) {
    // (q² − below²) / ((below + 1)² − below²)
    const auto width = hn::Add(hn::Add(below, below), hn::Set(d, 1.0f));
    share = hn::Div(hn::Mul(share, hn::Add(q, below)), width);
  }
  const auto up = hn::RebindMask(di, hn::Ge(share, Threshold(random)));
  return hn::Add(whole, hn::IfThenElseZero(up, hn::Set(di, 1)));
}

// Block `block` of a tensor: its codes and scale from n <= 64 values. All by
// chance, with the random numbers of the block's elements.
HWY_INLINE void EncodeBlock(BlockCoding coding, size_t n, const float* values,
                            const PhiloxKeys& keys, const RandomAddress& random,
                            int64_t block, uint8_t* codes, BF16* scale) {
  const DRandom d;
  const hn::RebindToSigned<DRandom> di;
  const hn::Rebind<uint8_t, DRandom> db;
  const size_t lanes = hn::Lanes(d);
  *scale = BlockScale(coding, LargestOfBlock(n, values));
  const auto step =
      std::bit_cast<float>(static_cast<uint32_t>(scale->bits) << 16);
  if (!(step > 0.0f)) {
    std::memset(codes, step == 0.0f ? 0 : 1, n);  // 1 times NaN is NaN
    return;
  }
  const bool is_signed = coding == BlockCoding::kSigned;
  const auto top = hn::Set(d, BlockTop(coding));
  DrawGroup(keys, random, block, [&](size_t i, VBits bits) HWY_ATTR {
    if (i >= n) return;
    const size_t some = HWY_MIN(lanes, n - i);
    const auto v = some == lanes ? hn::LoadU(d, values + i)
                                 : LoadFirst(d, values + i, some);
    const auto magnitude = is_signed ? hn::Abs(v) : hn::Sqrt(v);
    const auto q = hn::Min(hn::Div(magnitude, hn::Set(d, step)), top);
    auto code = CodesByChance(coding, q, bits);
    if (is_signed) {
      const auto negative = hn::RebindMask(di, hn::Lt(v, hn::Zero(d)));
      code = hn::IfThenElse(negative, hn::Neg(code), code);
      code = hn::And(code, hn::Set(di, 0xFF));
    } else {
      // Above 0 stays above 0: a square root of it is divided by.
      const auto some_of_it = hn::RebindMask(di, hn::Gt(v, hn::Zero(d)));
      code = hn::Max(code, hn::IfThenElseZero(some_of_it, hn::Set(di, 1)));
    }
    uint8_t buffer[hn::MaxLanes(d)];
    hn::StoreU(hn::DemoteTo(db, code), db, buffer);
    std::memcpy(codes + i, buffer, some);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
