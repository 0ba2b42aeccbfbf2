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
