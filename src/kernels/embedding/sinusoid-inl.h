// SPDX-License-Identifier: Apache-2.0
//
// Sines and cosines of positions. Included once per SIMD target, after
// <hwy/highway.h>; hence no `#pragma once`.
#if defined(THIMBLE_KERNELS_EMBEDDING_SINUSOID_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef THIMBLE_KERNELS_EMBEDDING_SINUSOID_INL_H_
#undef THIMBLE_KERNELS_EMBEDDING_SINUSOID_INL_H_
#else
#define THIMBLE_KERNELS_EMBEDDING_SINUSOID_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "kernels/elements-inl.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

using Wide = hn::Repartition<double, D>;
using HalfD = hn::Half<D>;

// Of an angle in quarters of a turn: the nearest whole quarter, and what is
// left, in [-1/2, 1/2].
struct Quarters {
  hn::Vec<hn::RebindToSigned<D>> whole;
  V rest;
};

// Angles are f64 until whole turns are gone, so the rest of any position's is
// as exact as f32 can hold it.
HWY_INLINE Quarters QuartersAt(const double* frequencies,
                               hn::Vec<Wide> position) {
  const Wide dw;
  const HalfD half;
  const hn::RebindToSigned<HalfD> half_int;
  const auto lower = hn::Mul(hn::LoadU(dw, frequencies), position);
  const auto upper =
      hn::Mul(hn::LoadU(dw, frequencies + hn::Lanes(dw)), position);
  const auto lower_whole = hn::Round(lower), upper_whole = hn::Round(upper);
  return {
      hn::Combine(hn::RebindToSigned<D>(), hn::DemoteTo(half_int, upper_whole),
                  hn::DemoteTo(half_int, lower_whole)),
      hn::Combine(D(), hn::DemoteTo(half, hn::Sub(upper, upper_whole)),
                  hn::DemoteTo(half, hn::Sub(lower, lower_whole)))};
}

// The sum over k of c[k] x^k.
template <size_t n>
HWY_INLINE V Polynomial(V x, const float (&c)[n]) {
  const D d;
  V sum = hn::Set(d, c[n - 1]);
  THIMBLE_UNROLL
  for (size_t k = 2; k <= n; ++k) {
    sum = hn::MulAdd(sum, x, hn::Set(d, c[n - k]));
  }
  return sum;
}

// Taylor's series with x in quarters of a turn: (-1)^k (pi/2)^(2k+1) / (2k+1)!,
// and the same of even numbers. What is left out is below 2e-9, a thirtieth of
// what f32 rounds.
inline constexpr float kSineSeries[] = {
    1.57079632679489662f, -0.645964097506246254f, 0.0796926262461670451f,
    -0.00468175413531868810f, 0.000160441184787359821f};
inline constexpr float kCosineSeries[] = {1.0f,
                                          -1.23370055013616983f,
                                          0.253669507901048014f,
                                          -0.0208634807633529609f,
                                          0.000919260274839426580f,
                                          -0.0000252020423730606055f};

HWY_INLINE void SineAndCosine(const Quarters& angle, V* sine, V* cosine) {
  const D d;
  const hn::RebindToSigned<D> di;
  const V square = hn::Mul(angle.rest, angle.rest);
  const V s = hn::Mul(angle.rest, Polynomial(square, kSineSeries));
  const V c = Polynomial(square, kCosineSeries);
  // A quarter more makes a cosine of a sine, and minus a sine of a cosine.
  const auto one = hn::Set(di, 1);
  const auto swap = hn::RebindMask(d, hn::Eq(hn::And(angle.whole, one), one));
  const auto sign = [&](hn::Vec<hn::RebindToSigned<D>> whole) HWY_ATTR {
    const auto second = hn::And(whole, hn::Set(di, 2));
    return hn::BitCast(d, hn::ShiftLeft<30>(second));
  };
  *sine = hn::Xor(hn::IfThenElse(swap, c, s), sign(angle.whole));
  *cosine =
      hn::Xor(hn::IfThenElse(swap, s, c), sign(hn::Add(angle.whole, one)));
}

// to = w * scale + the sinusoid at `position`. `frequencies` are in quarters of
// a turn, and can be read up to a whole vector. `to` may be w.
HWY_INLINE void AddPosition(size_t features, float scale,
                            const double* frequencies, int64_t position,
                            const float* w, float* to) {
  const D d;
  const size_t lanes = hn::Lanes(d);
  const size_t half = features / 2;
  const auto at = hn::Set(Wide(), static_cast<double>(position));
  const V factor = hn::Set(d, scale);
  for (size_t i = 0; i < half; i += lanes) {
    V sine, cosine;
    SineAndCosine(QuartersAt(frequencies + i, at), &sine, &cosine);
    const float *low = w + i, *high = w + half + i;
    float *to_low = to + i, *to_high = to + half + i;
    if (half - i >= lanes) {
      hn::StoreU(hn::MulAdd(hn::LoadU(d, low), factor, sine), d, to_low);
      hn::StoreU(hn::MulAdd(hn::LoadU(d, high), factor, cosine), d, to_high);
    } else {
      const size_t n = half - i;
      StoreFirst(hn::MulAdd(LoadFirst(d, low, n), factor, sine), d, to_low, n);
      StoreFirst(hn::MulAdd(LoadFirst(d, high, n), factor, cosine), d, to_high,
                 n);
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
