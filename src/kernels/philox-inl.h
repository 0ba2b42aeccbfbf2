// SPDX-License-Identifier: Apache-2.0
//
// Philox4x32-10 on vectors of counters. Included once per SIMD target, after
// <hwy/highway.h>; hence no `#pragma once`.
#if defined(THIMBLE_KERNELS_PHILOX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef THIMBLE_KERNELS_PHILOX_INL_H_
#undef THIMBLE_KERNELS_PHILOX_INL_H_
#else
#define THIMBLE_KERNELS_PHILOX_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "kernels/random.h"
#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {

// At most one vector for each of a group's words, so that elements are numbered
// alike on every target.
using DRandom = hn::CappedTag<float, kRandomBlocks>;
using DBits = hn::RebindToUnsigned<DRandom>;
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

// The words of counters first_block, first_block + 1, …, one per lane.
HWY_INLINE void DrawLanes(const PhiloxKeys& keys, uint64_t step,
                          uint32_t stream, uint32_t first_block,
                          VBits (&words)[4]) {
  const DBits d;
  words[0] = hn::Iota(d, first_block);
  words[1] = hn::Set(d, static_cast<uint32_t>(step));
  words[2] = hn::Set(d, static_cast<uint32_t>(step >> 32));
  words[3] = hn::Set(d, stream);
  PhiloxLanes(keys, words);
}

// Calls f(i, bits) for the elements i, i + 1, … of group `group`, a vector at a
// time: all 64 of them.
template <typename F>
HWY_INLINE void DrawGroup(const PhiloxKeys& keys, const RandomAddress& random,
                          int64_t group, const F& f) {
  const size_t lanes = hn::Lanes(DRandom());
  const auto first = static_cast<uint32_t>(group) * uint32_t{kRandomBlocks};
  for (size_t lane = 0; lane < kRandomBlocks; lane += lanes) {
    VBits words[4];
    DrawLanes(keys, random.step, random.stream,
              first + static_cast<uint32_t>(lane), words);
    for (size_t word = 0; word < 4; ++word) {
      f(word * kRandomBlocks + lane, words[word]);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
