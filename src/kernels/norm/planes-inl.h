// SPDX-License-Identifier: Apache-2.0
//
// Batch norm of planes: lanes run over the pixels of one channel. Included once
// per SIMD target, after <hwy/highway.h>; hence no `#pragma once`.
#if defined(THIMBLE_KERNELS_NORM_PLANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef THIMBLE_KERNELS_NORM_PLANES_INL_H_
#undef THIMBLE_KERNELS_NORM_PLANES_INL_H_
#else
#define THIMBLE_KERNELS_NORM_PLANES_INL_H_
#endif

#include <hwy/highway.h>

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/convert-inl.h"
#include "kernels/elements-inl.h"
#include "kernels/lane_sums-inl.h"
#include "kernels/norm/coefficients.h"
#include "kernels/norm/moments-inl.h"
#include "kernels/norm/norm.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

// out[i] = f(x[i], g[i]) over [0, n); out may be x or g. The last elements are
// those of a whole vector, which is read before anything is written: masked
// stores are slow. N is size_t, or a constant.
template <typename N, typename T, typename F>
HWY_INLINE void MapPlane(N n, const T* x, const T* g, T* out, const F& f) {
  const D d;
  const size_t lanes = hn::Lanes(d);
  if (n < lanes) {
    const V v = LoadFirstAs(d, x, n);
    StoreFirstAs(f(v, LoadFirstAs(d, g, n)), d, out, n);
    return;
  }
  const size_t last = n - lanes;
  const V at_last = f(LoadAs(d, x + last), LoadAs(d, g + last));
  for (size_t i = 0; i < last; i += lanes) {
    StoreAs(f(LoadAs(d, x + i), LoadAs(d, g + i)), d, out + i);
  }
  StoreAs(at_last, d, out + last);
}

// Calls visit(c, offset, pixels) for the planes of channels [first, last), all
// of an image before the next one's. `pixels` may be a constant.
template <typename F>
HWY_INLINE void ForPlanes(const BatchNormShape& shape, int64_t images,
                          int64_t first, int64_t last, const F& visit) {
  WithSize(static_cast<size_t>(shape.pixels), [&](auto pixels) HWY_ATTR {
    for (int64_t i = 0; i < images; ++i) {
      for (int64_t c = first; c < last; ++c) {
        visit(c, (i * shape.channels + c) * shape.pixels, pixels);
      }
    }
  });
}

// Channels [begin, end), at most `most` of them together. Compiled once, as
// MomentsOfChannels. REQUIRES: most <= kMostApplied.
constexpr int64_t kMostApplied = 64;
template <typename T>
HWY_NOINLINE void ApplyPlanesTogether(int64_t most, const BatchNormShape& shape,
                                      int64_t images, float epsilon, const T* x,
                                      const float* gamma, const float* beta,
                                      const float* mean, const float* variance,
                                      T* y, int64_t begin, int64_t end) {
  const D d;
  for (int64_t first = begin; first < end; first += most) {
    const int64_t last = HWY_MIN(end, first + most);
    norm::Coefficients coefficients[kMostApplied];
    for (int64_t c = first; c < last; ++c) {
      coefficients[c - first] = norm::CoefficientsOf(
          epsilon, mean[c], variance[c], gamma[c], beta[c]);
    }
    ForPlanes(shape, images, first, last,
              [&](int64_t c, int64_t at, auto pixels) HWY_ATTR {
                const V scale = hn::Set(d, coefficients[c - first].scale);
                const V shift = hn::Set(d, coefficients[c - first].shift);
                MapPlane(pixels, x + at, x + at, y + at, [&](V v, V) HWY_ATTR {
                  return hn::MulAdd(v, scale, shift);
                });
              });
  }
}

// Nothing is read twice, so many channels go together: long stretches of
// memory are read faster.
template <typename T>
void ApplyPlanesOf(const BatchNormShape& shape, int64_t images, float epsilon,
                   const T* x, const float* gamma, const float* beta,
                   const float* mean, const float* variance, T* y,
                   int64_t begin, int64_t end) {
  ApplyPlanesTogether(kMostApplied, shape, images, epsilon, x, gamma, beta,
                      mean, variance, y, begin, end);
}

template <typename T>
void TrainPlanesOf(const BatchNormShape& shape, int64_t images, float epsilon,
                   const T* x, const float* gamma, const float* beta, T* y,
                   float* mean, float* variance, int64_t begin, int64_t end) {
  ForChannelsTogether(
      shape, begin, end, [&](int64_t first, int64_t last) HWY_ATTR {
        MomentsOfChannels(shape, images, x, mean, variance, first, last);
        ApplyPlanesTogether(kMostChannels, shape, images, epsilon, x, gamma,
                            beta, mean, variance, y, first, last);
      });
}

struct TwoSums {
  double first = 0.0;
  double second = 0.0;
};

// What is left of a channel's gradient when its sums are known:
// factor (g − Σg/m − (x − mean) inverse² Σg(x − mean)/m), m = count.
struct GradLine {
  float of_g, offset, of_x, center;

  GradLine() = default;
  GradLine(double factor, double inverse, const TwoSums& sums, double count,
           float mean)
      : of_g(static_cast<float>(factor)),
        offset(static_cast<float>(-factor * sums.first / count)),
        of_x(static_cast<float>(factor * inverse * inverse * sums.second /
                                count)),
        center(mean) {}
};

// Σ g and Σ g (x − mean) of channels that go together.
struct GradSums {
  HWY_ALIGN double first[kMostChannels] = {};
  HWY_ALIGN double second[kMostChannels] = {};
};

// As terms of SumPiece.
struct SumsOfGrads {
  static constexpr bool kOfBoth = true;

  static HWY_INLINE void Begin(V v, V g, V center, V& a, V& b) {
    a = g;
    b = hn::MulAdd(g, hn::Sub(v, center), hn::Zero(D()));
  }
  static HWY_INLINE void Add(V v, V g, V center, V& a, V& b) {
    a = hn::Add(a, g);
    b = hn::MulAdd(g, hn::Sub(v, center), b);
  }
};

// Of channels [first, last).
template <typename T>
HWY_INLINE void SumGrads(const BatchNormShape& shape, int64_t images,
                         const T* x, const float* mean, const T* grad_y,
                         int64_t first, int64_t last, GradSums& sums) {
  ForPieces(
      shape, images, first, [&](int64_t at, size_t n, int64_t next) HWY_ATTR {
        WithSize(n, [&](auto size) HWY_ATTR {
          SumPieces<true>(
              Pieces<decltype(size), T>{size, static_cast<size_t>(shape.pixels),
                                        x + at, grad_y + at, next - at},
              static_cast<size_t>(last - first), mean + first, SumsOfGrads(),
              [&](size_t c, hn::Vec<Few> of_g, hn::Vec<Few> of_gx) HWY_ATTR {
                AddTo(sums.first + c, of_g);
                AddTo(sums.second + c, of_gx);
              });
        });
      });
}

template <typename T>
void GradPlanesOf(const BatchNormShape& shape, int64_t images, float epsilon,
                  const T* x, const float* gamma, const float* mean,
                  const float* variance, const T* grad_y, T* grad_x,
                  float* grad_gamma, float* grad_beta, bool accumulate,
                  int64_t begin, int64_t end) {
  const D d;
  const auto count = static_cast<double>(images * shape.pixels);
  ForChannelsTogether(
      shape, begin, end, [&](int64_t first, int64_t last) HWY_ATTR {
        GradSums sums;
        GradLine lines[kMostChannels];
        SumGrads(shape, images, x, mean, grad_y, first, last, sums);
        for (int64_t c = first; c < last; ++c) {
          const TwoSums sum = {sums.first[c - first], sums.second[c - first]};
          const double inverse =
              1.0 / std::sqrt(static_cast<double>(variance[c]) + epsilon);
          const double old_beta = accumulate ? grad_beta[c] : 0.0;
          const double old_gamma = accumulate ? grad_gamma[c] : 0.0;
          grad_beta[c] = static_cast<float>(old_beta + sum.first);
          grad_gamma[c] = static_cast<float>(old_gamma + sum.second * inverse);
          lines[c - first] =
              GradLine(gamma[c] * inverse, inverse, sum, count, mean[c]);
        }
        if (grad_x == nullptr) return;
        ForPlanes(shape, images, first, last,
                  [&](int64_t c, int64_t at, auto n) HWY_ATTR {
                    const GradLine& line = lines[c - first];
                    const V of_g = hn::Set(d, line.of_g);
                    const V offset = hn::Set(d, line.offset);
                    const V of_x = hn::Set(d, line.of_x);
                    const V center = hn::Set(d, line.center);
                    MapPlane(n, x + at, grad_y + at, grad_x + at,
                             [&](V v, V g) HWY_ATTR {
                               return hn::NegMulAdd(
                                   hn::Sub(v, center), of_x,
                                   hn::MulAdd(g, of_g, offset));
                             });
                  });
      });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
