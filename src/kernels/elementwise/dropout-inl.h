// SPDX-License-Identifier: Apache-2.0
//
// Philox4x32-10 on vectors of counters, and dropout with it. Included once per
// SIMD target, after <hwy/highway.h>; hence no `#pragma once`.
#if defined(THIMBLE_KERNELS_DROPOUT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef THIMBLE_KERNELS_DROPOUT_INL_H_
#undef THIMBLE_KERNELS_DROPOUT_INL_H_
#else
#define THIMBLE_KERNELS_DROPOUT_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "kernels/elementwise/elementwise.h"
#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {

// At most one vector for each of a group's words, so that the layout of masks
// is the same on every target.
using DMask = hn::CappedTag<float, kDropoutBlocks>;
using DBits = hn::RebindToUnsigned<DMask>;
using VBits = hn::Vec<DBits>;

// Both halves of the 64-bit products.
HWY_INLINE void MulWide(VBits a, VBits m, VBits& high, VBits& low) {
  const DBits d;
  const hn::Repartition<uint64_t, DBits> d64;
  const auto even = hn::MulEven(a, m);
  const auto odd =
      hn::MulEven(hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(d64, a))), m);
  high = hn::OddEven(hn::BitCast(d, odd),
                     hn::BitCast(d, hn::ShiftRight<32>(even)));
  low =
      hn::OddEven(hn::BitCast(d, hn::ShiftLeft<32>(odd)), hn::BitCast(d, even));
}

// As thimble::Philox4x32, one counter per lane; c becomes the four words.
HWY_INLINE void PhiloxLanes(uint32_t k0, uint32_t k1, VBits (&c)[4]) {
  const DBits d;
  const VBits m0 = hn::Set(d, 0xD2511F53u);
  const VBits m1 = hn::Set(d, 0xCD9E8D57u);
  for (int round = 0; round < 10; ++round) {
    VBits high0, low0, high1, low1;
    MulWide(c[0], m0, high0, low0);
    MulWide(c[2], m1, high1, low1);
    c[0] = hn::Xor(hn::Xor(high1, c[1]), hn::Set(d, k0));
    c[1] = low1;
    c[2] = hn::Xor(hn::Xor(high0, c[3]), hn::Set(d, k1));
    c[3] = low0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
}

// y = x * scale where the bits are at least the rate, else 0.
HWY_INLINE hn::Vec<DMask> DropLanes(VBits bits, hn::Vec<DMask> rate,
                                    hn::Vec<DMask> scale, hn::Vec<DMask> x) {
  const DMask d;
  const hn::RebindToSigned<DMask> di;
  // 24 bits, exact in f32.
  const auto uniform =
      hn::ConvertTo(d, hn::BitCast(di, hn::ShiftRight<8>(bits)));
  return hn::IfThenElseZero(hn::Ge(uniform, rate), hn::Mul(x, scale));
}

// One group of an image: its first n <= kDropoutGroup elements are there.
void DropoutGroupOf(const DropoutMask& mask, uint32_t first_block, size_t n,
                    const float* x, float* y) {
  const DMask d;
  const DBits du;
  const size_t lanes = hn::Lanes(d);
  const auto rate = hn::Set(d, mask.rate * 0x1p24f);
  const auto scale = hn::Set(d, mask.scale());
  for (size_t lane = 0; lane < kDropoutBlocks; lane += lanes) {
    VBits bits[4] = {hn::Iota(du, first_block + static_cast<uint32_t>(lane)),
                     hn::Set(du, static_cast<uint32_t>(mask.step)),
                     hn::Set(du, static_cast<uint32_t>(mask.step >> 32)),
                     hn::Set(du, mask.stream)};
    PhiloxLanes(static_cast<uint32_t>(mask.seed),
                static_cast<uint32_t>(mask.seed >> 32), bits);
    for (size_t word = 0; word < 4; ++word) {
      const size_t at = word * kDropoutBlocks + lane;
      if (at >= n) break;
      const size_t count = n - at;
      if (count >= lanes) {
        hn::StoreU(DropLanes(bits[word], rate, scale, hn::LoadU(d, x + at)), d,
                   y + at);
      } else {
        StoreFirst(
            DropLanes(bits[word], rate, scale, LoadFirst(d, x + at, count)), d,
            y + at, count);
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
