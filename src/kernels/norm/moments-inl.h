// SPDX-License-Identifier: Apache-2.0
//
// Sums over pieces of planes, the moments that are merged from them, and the
// order in which pieces are visited.
// Included once per SIMD target, after <hwy/highway.h>; hence no `#pragma
// once`.
#if defined(THIMBLE_KERNELS_NORM_MOMENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef THIMBLE_KERNELS_NORM_MOMENTS_INL_H_
#undef THIMBLE_KERNELS_NORM_MOMENTS_INL_H_
#else
#define THIMBLE_KERNELS_NORM_MOMENTS_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "kernels/convert-inl.h"
#include "kernels/elements-inl.h"
#include "kernels/lane_sums-inl.h"
#include "kernels/norm/norm.h"
#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

// Channels of which the planes are read together: small planes are neighbours
// in each image, and pages of them are read faster than as many planes of
// different images.
constexpr int64_t kMostChannels = 16;
static_assert(kMostChannels % kTogether == 0);

// Asks for n elements that are read soon.
template <typename T>
HWY_INLINE void Fetch(const T* p, size_t n) {
  constexpr size_t kLine = 64 / sizeof(T);
  for (size_t i = 0; i < n; i += kLine) hwy::Prefetch(p + i);
}

// Sums over n ≤ kBatchNormPiece positions of x and g, which terms.Add(x, g,
// center, sum1, sum2) adds to. Past the end x is the center and g is 0, for
// which it must add nothing. terms.Begin makes the first sums: as Add to zeros,
// except that a zero may keep its sign, of which nothing is left in the sums of
// f64; it may not end in a product, which the compiler could fuse with the next
// addition. kFetch: what lies `ahead` of the elements is read soon.
template <bool kFetch, typename N, typename T, typename Terms>
HWY_INLINE void SumPiece(N n, const T* x, const T* g, ptrdiff_t ahead, V center,
                         const Terms& terms, V& sum1, V& sum2) {
  const D d;
  const size_t lanes = hn::Lanes(d);
  V a0 = hn::Zero(d), a1 = a0, a2 = a0, a3 = a0;
  V b0 = a0, b1 = a0, b2 = a0, b3 = a0;
  const auto begin = [&](size_t i, V& a, V& b) HWY_ATTR {
    terms.Begin(LoadAs(d, x + i), LoadAs(d, g + i), center, a, b);
  };
  const auto add = [&](size_t i, V& a, V& b) HWY_ATTR {
    terms.Add(LoadAs(d, x + i), LoadAs(d, g + i), center, a, b);
  };
  const auto fetch = [&](size_t i, size_t count) HWY_ATTR {
    if constexpr (kFetch) Fetch(x + i + ahead, count);
    if constexpr (kFetch && Terms::kOfBoth) Fetch(g + i + ahead, count);
  };
  size_t i = 0;
  if (n >= 4 * lanes) {
    fetch(0, 4 * lanes);
    begin(0, a0, b0);
    begin(lanes, a1, b1);
    begin(2 * lanes, a2, b2);
    begin(3 * lanes, a3, b3);
    i = 4 * lanes;
  }
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    fetch(i, 4 * lanes);
    add(i, a0, b0);
    add(i + lanes, a1, b1);
    add(i + 2 * lanes, a2, b2);
    add(i + 3 * lanes, a3, b3);
  }
  fetch(i, n - i);
  for (; i + lanes <= n; i += lanes) add(i, a0, b0);
  if (i < n) {
    const V last = hn::IfThenElse(hn::FirstN(d, n - i),
                                  LoadFirstAs(d, x + i, n - i), center);
    terms.Add(last, LoadFirstAs(d, g + i, n - i), center, a1, b1);
  }
  sum1 = hn::Add(hn::Add(a0, a1), hn::Add(a2, a3));
  sum2 = hn::Add(hn::Add(b0, b1), hn::Add(b2, b3));
}

// Σ x. The center is 0.
struct SumOfX {
  static constexpr bool kOfBoth = false;
  static HWY_INLINE void Begin(V v, V, V, V& a, V&) { a = v; }
  static HWY_INLINE void Add(V v, V, V, V& a, V&) { a = hn::Add(a, v); }
};

// Σ (x − center) and Σ (x − center)².
struct SumsOfDeviations {
  static constexpr bool kOfBoth = false;
  static HWY_INLINE void Begin(V v, V, V center, V& a, V& b) {
    a = hn::Sub(v, center);
    b = hn::MulAdd(a, a, hn::Zero(D()));
  }
  static HWY_INLINE void Add(V v, V, V center, V& a, V& b) {
    const V deviation = hn::Sub(v, center);
    a = hn::Add(a, deviation);
    b = hn::MulAdd(deviation, deviation, b);
  }
};

// Pieces at the same place of several channels' planes. N is size_t, or a
// constant.
template <typename N, typename T>
struct Pieces {
  N n;
  size_t stride;  // from one channel to the next
  const T* x;
  const T* g;
  ptrdiff_t ahead;  // to the pieces that are read next
};

// Calls take(c, sums1, sums2) for a few channels from c on at a time, out of
// `channels`. Lanes past the last one are undefined.
template <bool kFetch, typename N, typename T, typename Terms, typename Take>
HWY_INLINE void SumPieces(const Pieces<N, T>& pieces, size_t channels,
                          const float* centers, const Terms& terms,
                          const Take& take) {
  const D d;
  V sum1[kTogether] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  V sum2[kTogether] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  const auto sum = [&](size_t c, size_t k) HWY_ATTR {
    const size_t at = (c + k) * pieces.stride;
    SumPiece<kFetch>(pieces.n, pieces.x + at, pieces.g + at, pieces.ahead,
                     hn::Set(d, centers[c + k]), terms, sum1[k], sum2[k]);
  };
  size_t c = 0;
  for (; c + kTogether <= channels; c += kTogether) {
    THIMBLE_UNROLL
    for (size_t k = 0; k < kTogether; ++k) sum(c, k);
    take(c, SumsOfLanes(sum1), SumsOfLanes(sum2));
  }
  if (c == channels) return;
  for (size_t k = 0; c + k < channels; ++k) sum(c, k);
  take(c, SumsOfLanes(sum1), SumsOfLanes(sum2));
}

// sums += a few f32, in f64.
HWY_INLINE void AddTo(double* sums, hn::Vec<Few> v) {
  const FewWide dw;
  const hn::Rebind<float, FewWide> df;
  HWY_ALIGN float values[kTogether];
  hn::Store(v, Few(), values);
  for (size_t k = 0; k < kTogether; k += hn::Lanes(dw)) {
    const auto wide = hn::PromoteTo(dw, hn::Load(df, values + k));
    hn::Store(hn::Add(hn::Load(dw, sums + k), wide), dw, sums + k);
  }
}

// Counts, means and sums of squared deviations of what was merged so far, of
// channels that are all seen as often.
struct Moments {
  double count = 0.0;
  HWY_ALIGN double mean[kMostChannels] = {};
  HWY_ALIGN double m2[kMostChannels] = {};
};

// Chan, Golub & LeVeque: the union of what was merged with n pixels more, for
// channels in lanes.
class Union {
 public:
  HWY_INLINE Union(double count, double n)
      : of_mean_(hn::Set(FewWide(), n / (count + n))),
        of_square_(hn::Set(FewWide(), count * n / (count + n))) {}

  HWY_INLINE void Merge(hn::Vec<FewWide> other_mean, hn::Vec<FewWide> other_m2,
                        double* mean, double* m2) const {
    const FewWide d;
    const auto old = hn::Load(d, mean);
    const auto delta = hn::Sub(other_mean, old);
    hn::Store(hn::MulAdd(delta, of_mean_, old), d, mean);
    const auto more = hn::MulAdd(hn::Mul(delta, delta), of_square_, other_m2);
    hn::Store(hn::Add(hn::Load(d, m2), more), d, m2);
  }

 private:
  hn::Vec<FewWide> of_mean_, of_square_;
};

// Two passes: the first finds shifts near the means, the second sums the
// deviations d from them. The shifts' rounding errors cancel: mean = shift +
// Σd/n and m2 = Σd² − (Σd)²/n hold for any shift, and Σd is small for a near
// one. The second pass waits for the sums of the first, so all channels take
// each pass one after the other.
template <typename N, typename T>
HWY_INLINE void MergePieces(const Pieces<N, T>& pieces, size_t channels,
                            Moments& moments) {
  const FewWide d;
  const auto n = static_cast<double>(pieces.n);
  const ByPixels over(pieces.n);
  const Union merged(moments.count, n);
  HWY_ALIGN float shifts[kMostChannels] = {};
  HWY_ALIGN float sums[2][kTogether];
  SumPieces<false>(pieces, channels, shifts, SumOfX(),
                   [&](size_t c, hn::Vec<Few> sum, hn::Vec<Few>) HWY_ATTR {
                     const hn::Rebind<float, FewWide> df;
                     hn::Store(sum, Few(), sums[0]);
                     for (size_t k = 0; k < kTogether; k += hn::Lanes(d)) {
                       const auto shift = over(LoadFewWide(sums[0] + k));
                       hn::Store(hn::DemoteTo(df, shift), df, shifts + c + k);
                     }
                   });
  SumPieces<true>(
      pieces, channels, shifts, SumsOfDeviations(),
      [&](size_t c, hn::Vec<Few> sum, hn::Vec<Few> squares) HWY_ATTR {
        hn::Store(sum, Few(), sums[0]);
        hn::Store(squares, Few(), sums[1]);
        for (size_t k = 0; k < kTogether; k += hn::Lanes(d)) {
          const auto off = LoadFewWide(sums[0] + k);
          const auto m2 =
              hn::Sub(LoadFewWide(sums[1] + k), over(hn::Mul(off, off)));
          merged.Merge(hn::Add(LoadFewWide(shifts + c + k), over(off)),
                       // A NaN stays.
                       hn::IfThenZeroElse(hn::Lt(m2, hn::Zero(d)), m2),
                       moments.mean + c + k, moments.m2 + c + k);
        }
      });
  moments.count += n;
}

HWY_INLINE int64_t ChannelsTogether(const BatchNormShape& shape) {
  const int64_t channels = 4 * kBatchNormPiece / shape.pixels;
  return HWY_MAX(int64_t{1}, HWY_MIN(channels, kMostChannels));
}

// Calls visit(first, last) for the channels of [begin, end) that go together.
template <typename F>
HWY_INLINE void ForChannelsTogether(const BatchNormShape& shape, int64_t begin,
                                    int64_t end, const F& visit) {
  const int64_t channels = ChannelsTogether(shape);
  for (int64_t c = begin; c < end; c += channels) {
    visit(c, HWY_MIN(end, c + channels));
  }
}

// Calls visit(offset, count, next) for the pieces of channel `first` of all
// images in order; `next` is the offset of the piece after this one.
template <typename F>
HWY_INLINE void ForPieces(const BatchNormShape& shape, int64_t images,
                          int64_t first, const F& visit) {
  const int64_t image = shape.channels * shape.pixels;
  for (int64_t i = 0; i < images; ++i) {
    const int64_t plane = i * image + first * shape.pixels;
    for (int64_t p = 0; p < shape.pixels; p += kBatchNormPiece) {
      const int64_t n = HWY_MIN(kBatchNormPiece, shape.pixels - p);
      const bool more = p + n < shape.pixels;
      const int64_t next = more ? plane + p + n : plane + image;
      visit(plane + p, static_cast<size_t>(n),
            i + 1 < images || more ? next : plane);
    }
  }
}

// Mean and variance of channels [first, last) that go together. Compiled once,
// not in each of its callers: it has a form for each size of planes.
template <typename T>
HWY_NOINLINE void MomentsOfChannels(const BatchNormShape& shape, int64_t images,
                                    const T* x, float* mean, float* variance,
                                    int64_t first, int64_t last) {
  Moments moments;
  ForPieces(
      shape, images, first, [&](int64_t at, size_t n, int64_t next) HWY_ATTR {
        WithSize(n, [&](auto size) HWY_ATTR {
          MergePieces(
              Pieces<decltype(size), T>{size, static_cast<size_t>(shape.pixels),
                                        x + at, x + at, next - at},
              static_cast<size_t>(last - first), moments);
        });
      });
  for (int64_t c = first; c < last; ++c) {
    mean[c] = static_cast<float>(moments.mean[c - first]);
    variance[c] = static_cast<float>(moments.m2[c - first] / moments.count);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
