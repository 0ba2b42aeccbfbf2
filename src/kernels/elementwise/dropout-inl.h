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
#include "kernels/stage-inl.h"
#include "kernels/tensor.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

// At most one vector for each of a group's words, so that the layout of masks
// is the same on every target.
using DMask = hn::CappedTag<float, kDropoutBlocks>;
using DBits = hn::RebindToUnsigned<DMask>;
using VBits = hn::Vec<DBits>;

// The keys of the ten rounds.
struct PhiloxKeys {
  static constexpr size_t kRounds = 10;

  explicit PhiloxKeys(uint64_t seed) {
    auto low = static_cast<uint32_t>(seed);
    auto high = static_cast<uint32_t>(seed >> 32);
    for (size_t round = 0; round < kRounds; ++round) {
      k0[round] = low;
      k1[round] = high;
      low += 0x9E3779B9u;
      high += 0xBB67AE85u;
    }
  }
  uint32_t k0[kRounds];
  uint32_t k1[kRounds];
};

// Every other counter, in the lower halves of 64 bits, where products are made.
// What the upper halves hold is of no account: a product reads the lower ones,
// and xor keeps the halves apart.
struct PhiloxHalf {
  VBits c[4];

  HWY_INLINE void Round(VBits k0, VBits k1) {
    const DBits d;
    const hn::Repartition<uint64_t, DBits> d64;
    const auto p0 = hn::MulEven(c[0], hn::Set(d, 0xD2511F53u));
    const auto p1 = hn::MulEven(c[2], hn::Set(d, 0xCD9E8D57u));
    const VBits high0 =
        hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(d64, p0)));
    const VBits high1 =
        hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(d64, p1)));
    c[0] = hn::Xor(hn::Xor(high1, c[1]), k0);
    c[1] = hn::BitCast(d, p1);
    c[2] = hn::Xor(hn::Xor(high0, c[3]), k1);
    c[3] = hn::BitCast(d, p0);
  }
};

// As thimble::Philox4x32, one counter per lane; c becomes the four words.
HWY_INLINE void PhiloxLanes(const PhiloxKeys& keys, VBits (&c)[4]) {
  const DBits d;
  const hn::Repartition<uint64_t, DBits> d64;
  PhiloxHalf even, odd;
  for (size_t w = 0; w < 4; ++w) {
    even.c[w] = c[w];
    odd.c[w] = hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(d64, c[w])));
  }
  for (size_t round = 0; round < PhiloxKeys::kRounds; ++round) {
    const VBits k0 = hn::Set(d, keys.k0[round]);
    const VBits k1 = hn::Set(d, keys.k1[round]);
    even.Round(k0, k1);
    odd.Round(k0, k1);
  }
  for (size_t w = 0; w < 4; ++w) {
    const auto upper = hn::ShiftLeft<32>(hn::BitCast(d64, odd.c[w]));
    c[w] = hn::OddEven(hn::BitCast(d, upper), even.c[w]);
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
HWY_INLINE void DropoutGroupOf(const DropoutMask& mask, const PhiloxKeys& keys,
                               uint32_t first_block, size_t n, const float* x,
                               float* y) {
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
    PhiloxLanes(keys, bits);
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

// Groups [begin, end) of images of `elements` each, counted over all of them.
void DropoutGroups(int64_t begin, int64_t end, int64_t elements,
                   const DropoutMask& mask, const ConstTensor& x,
                   const Tensor& y) {
  constexpr auto kGroup = static_cast<int64_t>(kDropoutGroup);
  const int64_t groups = (elements + kGroup - 1) / kGroup;
  const PhiloxKeys keys(mask.seed);
  for (int64_t unit = begin; unit < end; ++unit) {
    const int64_t first = unit % groups * kGroup;
    const int64_t block =
        (mask.first * groups + unit) * static_cast<int64_t>(kDropoutBlocks);
    const int64_t at = unit / groups * elements + first;
    const int64_t n = HWY_MIN(kGroup, elements - first);
    HWY_ALIGN float line[kDropoutGroup];
    float* to = PieceToWrite(y, at, line);
    DropoutGroupOf(mask, keys, static_cast<uint32_t>(block),
                   static_cast<size_t>(n), ReadPiece(x, at, n, line), to);
    WritePiece(n, to, y, at);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
