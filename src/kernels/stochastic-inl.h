// SPDX-License-Identifier: Apache-2.0
//
// From f32 into f16 and bf16 by chance: up with the share of the distance that
// lies below, so that the mean is the value itself. Values that the type has
// stay as they are; infinities stay, finite values from 2^16 on become infinite
// in f16, NaNs stay NaNs (quiet). The same bits on every target for the same
// random bits. Included once per SIMD target, after <hwy/highway.h>; hence no
// `#pragma once`.
#if defined(THIMBLE_KERNELS_STOCHASTIC_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef THIMBLE_KERNELS_STOCHASTIC_INL_H_
#undef THIMBLE_KERNELS_STOCHASTIC_INL_H_
#else
#define THIMBLE_KERNELS_STOCHASTIC_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/convert-inl.h"
#include "kernels/philox-inl.h"
#include "kernels/storage.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {

// An odd multiple of 2^-24 in (0, 1): a share that is at least this large is
// rounded up. So a share of 0 never is.
HWY_INLINE hn::Vec<DRandom> Threshold(VBits random) {
  const DRandom d;
  const hn::RebindToSigned<DRandom> di;
  const DBits du;
  const VBits odd = hn::Or(hn::ShiftRight<8>(random), hn::Set(du, 1u));
  return hn::Mul(hn::ConvertTo(d, hn::BitCast(di, odd)), hn::Set(d, 0x1p-24f));
}

// The random bits are added below the last place that is kept, and what is then
// below it is cut off.
HWY_INLINE hn::Vec<hn::Rebind<uint16_t, DRandom>> ToBitsByChance(
    DRandom d, BF16, hn::Vec<DRandom> v, VBits random) {
  const DBits du;
  const VBits bits = hn::BitCast(du, v);
  const VBits rounded =
      hn::ShiftRight<16>(hn::Add(bits, hn::ShiftRight<16>(random)));
  const VBits quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(du, 0x40u));
  const VBits magnitude = hn::And(bits, hn::Set(du, 0x7FFFFFFFu));
  const auto is_nan = hn::Gt(magnitude, hn::Set(du, 0x7F800000u));
  return Narrow(d, hn::IfThenElse(is_nan, quiet, rounded));
}

// As above where the result is normal. Below 2^-14 f16 has the multiples of
// 2^-24 alone, so that the last place is not that of the f32's exponent: there
// the share is compared.
HWY_INLINE hn::Vec<hn::Rebind<uint16_t, DRandom>> ToBitsByChance(
    DRandom d, F16, hn::Vec<DRandom> v, VBits random) {
  const DBits du;
  const hn::RebindToSigned<DRandom> di;
  const VBits bits = hn::BitCast(du, v);
  const VBits sign = hn::And(bits, hn::Set(du, 0x80000000u));
  const VBits magnitude = hn::Xor(bits, sign);
  const VBits rebias = hn::Set(du, 0u - ((127u - 15u) << 23));
  const VBits normal = hn::ShiftRight<13>(
      hn::Add(hn::Add(magnitude, rebias), hn::ShiftRight<19>(random)));
  const auto is_small = hn::Lt(magnitude, hn::Set(du, 113u << 23));
  // Exact, as is the difference below; 0 where the result is not needed.
  const auto steps = hn::IfThenElseZero(
      hn::RebindMask(d, is_small),
      hn::Mul(hn::BitCast(d, magnitude), hn::Set(d, 0x1p24f)));
  const auto whole = hn::ConvertTo(di, steps);
  const auto share = hn::Sub(steps, hn::ConvertTo(d, whole));
  const auto up = hn::IfThenElseZero(
      hn::RebindMask(du, hn::Ge(share, Threshold(random))), hn::Set(du, 1u));
  const VBits subnormal = hn::Add(hn::BitCast(du, whole), up);
  const auto is_large = hn::Gt(magnitude, hn::Set(du, (143u << 23) - 1));
  const auto is_nan = hn::Gt(magnitude, hn::Set(du, 0x7F800000u));
  const VBits large =
      hn::IfThenElse(is_nan, hn::Set(du, 0x7E00u), hn::Set(du, 0x7C00u));
  const VBits finite = hn::IfThenElse(is_small, subnormal, normal);
  const VBits result = hn::IfThenElse(is_large, large, finite);
  return Narrow(d, hn::Or(result, hn::ShiftRight<16>(sign)));
}

// to[i] = from[i], i < n, with the random bits of elements first + i.
// REQUIRES: first is a multiple of kRandomGroup.
template <typename T>
HWY_INLINE void StoreRowByChance(int64_t first, int64_t n,
                                 const RandomAddress& random, const float* from,
                                 T* to) {
  const DRandom d;
  const hn::Rebind<uint16_t, DRandom> dn;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  constexpr auto kGroup = static_cast<int64_t>(kRandomGroup);
  const PhiloxKeys keys(random.seed);
  for (int64_t begin = 0; begin < n; begin += kGroup) {
    DrawGroup(keys, random, (first + begin) / kGroup,
              [&](size_t at, VBits bits) HWY_ATTR {
                const int64_t i = begin + static_cast<int64_t>(at);
                if (i >= n) return;
                if (i + lanes <= n) {
                  const auto v = hn::LoadU(d, from + i);
                  hn::StoreU(ToBitsByChance(d, T(), v, bits), dn, &to[i].bits);
                  return;
                }
                const auto rest = static_cast<size_t>(n - i);
                const auto v = LoadFirst(d, from + i, rest);
                uint16_t buffer[hn::MaxLanes(d)];
                hn::StoreU(ToBitsByChance(d, T(), v, bits), dn, buffer);
                std::memcpy(&to[i].bits, buffer, rest * sizeof(uint16_t));
              });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
