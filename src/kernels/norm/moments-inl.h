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

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "kernels/convert-inl.h"
#include "kernels/elements-inl.h"
#include "kernels/norm/norm.h"
#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

struct TwoSums {
  double first = 0.0;
  double second = 0.0;
};

// Sums over n ≤ kBatchNormPiece positions of x and g, which add(x, g, sum1,
// sum2) adds to. Past the end x is `rest` and g is 0, for which add must add
// nothing.
template <typename T, typename F>
HWY_INLINE TwoSums SumPiece(size_t n, const T* x, const T* g, float rest,
                            const F& add) {
  const D d;
  const size_t lanes = hn::Lanes(d);
  V a0 = hn::Zero(d), a1 = a0, a2 = a0, a3 = a0;
  V b0 = a0, b1 = a0, b2 = a0, b3 = a0;
  const auto load = [&](const T* p) HWY_ATTR { return LoadAs(d, p); };
  size_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    add(load(x + i), load(g + i), a0, b0);
    add(load(x + i + lanes), load(g + i + lanes), a1, b1);
    add(load(x + i + 2 * lanes), load(g + i + 2 * lanes), a2, b2);
    add(load(x + i + 3 * lanes), load(g + i + 3 * lanes), a3, b3);
  }
  for (; i + lanes <= n; i += lanes) add(load(x + i), load(g + i), a0, b0);
  if (i < n) {
    const V last = hn::IfThenElse(
        hn::FirstN(d, n - i), LoadFirstAs(d, x + i, n - i), hn::Set(d, rest));
    add(last, LoadFirstAs(d, g + i, n - i), a1, b1);
  }
  const V a = hn::Add(hn::Add(a0, a1), hn::Add(a2, a3));
  const V b = hn::Add(hn::Add(b0, b1), hn::Add(b2, b3));
  return {hn::GetLane(hn::SumOfLanes(d, a)), hn::GetLane(hn::SumOfLanes(d, b))};
}

// Count, mean and sum of squared deviations of what was merged so far.
struct Moments {
  double count = 0.0;
  double mean = 0.0;
  double m2 = 0.0;

  // Chan, Golub & LeVeque: the union of two samples.
  void Merge(double n, double other_mean, double other_m2) {
    const double total = count + n;
    const double delta = other_mean - mean;
    mean += delta * (n / total);
    m2 += other_m2 + delta * delta * (count * n / total);
    count = total;
  }

  void Store(float& to_mean, float& to_variance) const {
    to_mean = static_cast<float>(mean);
    to_variance = static_cast<float>(m2 / count);
  }
};

// Pieces of n ≤ kBatchNormPiece pixels, each merged into moments of its own
// choice. A first pass finds a shift near the mean; the second sums the
// deviations d from it. The shift's rounding error cancels: mean = shift + Σd/n
// and m2 = Σd² − (Σd)²/n hold for any shift, and Σd is small for a near one.
//
// A pass waits for the sum of the one before. So pieces are kept until there
// are kPieces, which take each pass one after the other, and are then merged in
// the order in which they came.
template <typename T>
class PieceMerger {
 public:
  // REQUIRES: x and moments stay until the next Flush.
  HWY_INLINE void Add(size_t n, const T* x, Moments& moments) {
    pieces_[count_++] = {n, x, &moments};
    if (count_ == kPieces) Flush();
  }

  HWY_INLINE void Flush() {
    float shifts[kPieces];
    for (size_t i = 0; i < count_; ++i) shifts[i] = ShiftOf(pieces_[i]);
    for (size_t i = 0; i < count_; ++i) Merge(pieces_[i], shifts[i]);
    count_ = 0;
  }

 private:
  static constexpr size_t kPieces = 4;
  struct Piece {
    size_t n;
    const T* x;
    Moments* moments;
  };

  static HWY_INLINE float ShiftOf(const Piece& piece) {
    const TwoSums sum =
        SumPiece(piece.n, piece.x, piece.x, 0.0f,
                 [](V v, V, V& a, V&) HWY_ATTR { a = hn::Add(a, v); });
    return static_cast<float>(sum.first / static_cast<double>(piece.n));
  }

  static HWY_INLINE void Merge(const Piece& piece, float shift) {
    const auto count = static_cast<double>(piece.n);
    const V center = hn::Set(D(), shift);
    const TwoSums off = SumPiece(piece.n, piece.x, piece.x, shift,
                                 [center](V v, V, V& a, V& b) HWY_ATTR {
                                   const V deviation = hn::Sub(v, center);
                                   a = hn::Add(a, deviation);
                                   b = hn::MulAdd(deviation, deviation, b);
                                 });
    double m2 = off.second - off.first * off.first / count;
    if (m2 < 0.0) m2 = 0.0;  // a NaN stays
    piece.moments->Merge(count, shift + off.first / count, m2);
  }

  Piece pieces_[kPieces];
  size_t count_ = 0;
};

// Channels of which the planes are read together: small planes are neighbours
// in each image, and a page of them is read faster than as many planes of
// different images.
constexpr int64_t kMostChannels = 16;

HWY_INLINE int64_t ChannelsTogether(const BatchNormShape& shape) {
  const int64_t channels = kBatchNormPiece / shape.pixels;
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

// Calls visit(channel, offset, count) for each piece of channels [first, last),
// those of one channel with its images in order.
template <typename F>
HWY_INLINE void ForPieces(const BatchNormShape& shape, int64_t images,
                          int64_t first, int64_t last, const F& visit) {
  for (int64_t i = 0; i < images; ++i) {
    for (int64_t c = first; c < last; ++c) {
      const int64_t plane = (i * shape.channels + c) * shape.pixels;
      for (int64_t p = 0; p < shape.pixels; p += kBatchNormPiece) {
        const int64_t n = HWY_MIN(kBatchNormPiece, shape.pixels - p);
        visit(c, plane + p, static_cast<size_t>(n));
      }
    }
  }
}

// Mean and variance of channels [first, last) that go together.
template <typename T>
HWY_INLINE void MomentsOfChannels(const BatchNormShape& shape, int64_t images,
                                  const T* x, float* mean, float* variance,
                                  int64_t first, int64_t last) {
  Moments moments[kMostChannels];
  PieceMerger<T> merger;
  ForPieces(shape, images, first, last,
            [&](int64_t c, int64_t at, size_t n)
                HWY_ATTR { merger.Add(n, x + at, moments[c - first]); });
  merger.Flush();
  for (int64_t c = first; c < last; ++c) {
    moments[c - first].Store(mean[c], variance[c]);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
