// SPDX-License-Identifier: Apache-2.0
//
// Sums of the lanes of several vectors at a time. Included once per SIMD
// target, after <hwy/highway.h>; hence no `#pragma once`.
#if defined(THIMBLE_KERNELS_LANE_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef THIMBLE_KERNELS_LANE_SUMS_INL_H_
#undef THIMBLE_KERNELS_LANE_SUMS_INL_H_
#else
#define THIMBLE_KERNELS_LANE_SUMS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <type_traits>

#include "kernels/elements-inl.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

// Vectors of which lanes are summed together. What follows in f64 is computed
// in lanes too: each lane computes what its vector alone would.
constexpr size_t kTogether = 4;
using Few = hn::CappedTag<float, kTogether>;
using FewWide = hn::CappedTag<double, kTogether>;

// Half of the lanes is added to the other half until few are left, which is how
// SumOfLanes begins.
template <class DV>
HWY_INLINE hn::Vec<Few> FoldToFew(DV d, hn::Vec<DV> v) {
  if constexpr (hn::MaxLanes(d) > kTogether) {
    const hn::Half<DV> half;
    return FoldToFew(half,
                     hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  } else {
    return v;
  }
}

#if HWY_TARGET == HWY_AVX3
// Halves, then quarters of four vectors at a time: [a b], then blocks
// [a c b d], each the sums of its vector's lanes that are four apart. A third
// of the shuffles, which share their port with multiply-adds, that one vector
// after the other takes.
HWY_INLINE V FoldFour(V a, V b, V c, V e) {
  const D d;
  const V ab =
      hn::Add(hn::ConcatLowerLower(d, b, a), hn::ConcatUpperUpper(d, b, a));
  const V ce =
      hn::Add(hn::ConcatLowerLower(d, e, c), hn::ConcatUpperUpper(d, e, c));
  return hn::Add(hn::OddEvenBlocks(ce, ab),
                 hn::SwapAdjacentBlocks(hn::OddEvenBlocks(ab, ce)));
}

// SumOfLanes of four vectors, to the bit.
HWY_INLINE hn::Vec<Few> SumsOfLanes(const V (&v)[kTogether]) {
  const D d;
  V sums = FoldFour(v[0], v[1], v[2], v[3]);
  sums = hn::Add(sums, hn::Shuffle1032(sums));
  sums = hn::Add(sums, hn::Shuffle2301(sums));
  alignas(64) static constexpr int32_t kPlaces[16] = {0, 8, 4, 12};
  sums = hn::TableLookupLanes(sums, hn::SetTableIndices(d, kPlaces));
  return hn::LowerHalf(Few(), hn::LowerHalf(hn::Half<D>(), sums));
}

// The same of eight.
HWY_INLINE hn::Vec<hn::Half<D>> SumsOfLanes(const V (&v)[2 * kTogether]) {
  const D d;
  const hn::Repartition<double, D> pairs;
  const auto a = hn::BitCast(pairs, FoldFour(v[0], v[1], v[2], v[3]));
  const auto b = hn::BitCast(pairs, FoldFour(v[4], v[5], v[6], v[7]));
  V sums = hn::Add(hn::BitCast(d, hn::InterleaveLower(pairs, a, b)),
                   hn::BitCast(d, hn::InterleaveUpper(pairs, a, b)));
  sums = hn::Add(sums, hn::Shuffle2301(sums));
  alignas(64) static constexpr int32_t kPlaces[16] = {0, 8,  4, 12,
                                                      2, 10, 6, 14};
  sums = hn::TableLookupLanes(sums, hn::SetTableIndices(d, kPlaces));
  return hn::LowerHalf(hn::Half<D>(), sums);
}
#else
// SumOfLanes of four vectors, to the bit: lanes 0 and 2, 1 and 3, then both.
HWY_INLINE hn::Vec<Few> SumsOfLanes(const V (&v)[kTogether]) {
  const D d;
  const Few f;
  const auto a = FoldToFew(d, v[0]), b = FoldToFew(d, v[1]);
  const auto c = FoldToFew(d, v[2]), e = FoldToFew(d, v[3]);
  const auto ac =
      hn::Add(hn::InterleaveLower(f, a, c), hn::InterleaveUpper(f, a, c));
  const auto be =
      hn::Add(hn::InterleaveLower(f, b, e), hn::InterleaveUpper(f, b, e));
  return hn::Add(hn::InterleaveLower(f, ac, be),
                 hn::InterleaveUpper(f, ac, be));
}
#endif

// f64 of a few f32 that were stored.
HWY_INLINE hn::Vec<FewWide> LoadFewWide(const float* p) {
  const hn::Rebind<float, FewWide> d;
  return hn::PromoteTo(FewWide(), hn::Load(d, p));
}

// Division by a number of pixels. A power of two is a factor as well, which is
// exact and takes a fraction of the time.
class ByPixels {
 public:
  explicit HWY_INLINE ByPixels(size_t n)
      : is_power_((n & (n - 1)) == 0),
        n_(hn::Set(FewWide(), static_cast<double>(n))),
        inverse_(hn::Set(FewWide(), 1.0 / static_cast<double>(n))) {}

  HWY_INLINE hn::Vec<FewWide> operator()(hn::Vec<FewWide> v) const {
    return is_power_ ? hn::Mul(v, inverse_) : hn::Div(v, n_);
  }

 private:
  bool is_power_;
  hn::Vec<FewWide> n_, inverse_;
};

// Calls run(n): with a constant for the planes of 7 by 7 and 8 by 8 pixels in
// which networks end. They are few instructions, half of which would be for
// loops.
template <typename F>
HWY_INLINE void WithSize(size_t n, const F& run) {
  if (n == 49) {
    run(std::integral_constant<size_t, 49>());
  } else if (n == 64) {
    run(std::integral_constant<size_t, 64>());
  } else {
    run(n);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
