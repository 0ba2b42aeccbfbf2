// SPDX-License-Identifier: Apache-2.0
//
// Batch norm of rows of features (pixels = 1): lanes run over channels, in f64.
// Included once per SIMD target, after <hwy/highway.h>; hence no `#pragma
// once`.
#if defined(THIMBLE_KERNELS_NORM_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef THIMBLE_KERNELS_NORM_ROWS_INL_H_
#undef THIMBLE_KERNELS_NORM_ROWS_INL_H_
#else
#define THIMBLE_KERNELS_NORM_ROWS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "kernels/convert-inl.h"
#include "kernels/norm/coefficients.h"
#include "kernels/norm/norm.h"
#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

using Wide = hn::ScalableTag<double>;
using WideV = hn::Vec<Wide>;
using Narrow = hn::Rebind<float, Wide>;

// `n` is of the elements left, and may be more than a vector's.
template <typename T>
HWY_INLINE hn::Vec<Narrow> LoadSome(const T* p, size_t n) {
  const Narrow d;
  return n >= hn::Lanes(d) ? LoadAs(d, p) : LoadFirstAs(d, p, n);
}

template <typename T>
HWY_INLINE void StoreSome(hn::Vec<Narrow> v, T* p, size_t n) {
  const Narrow d;
  if (n >= hn::Lanes(d)) {
    StoreAs(v, d, p);
  } else {
    StoreFirstAs(v, d, p, n);
  }
}

template <typename T>
HWY_INLINE WideV LoadWide(const T* p, size_t n) {
  return hn::PromoteTo(Wide(), LoadSome(p, n));
}

template <typename T>
HWY_INLINE void StoreNarrow(WideV v, T* p, size_t n) {
  StoreSome(hn::DemoteTo(Narrow(), v), p, n);
}

HWY_INLINE void StoreSum(WideV v, bool accumulate, float* p, size_t n) {
  StoreNarrow(accumulate ? hn::Add(LoadWide(p, n), v) : v, p, n);
}

// Calls visit(c, n) for vectors of n channels of [begin, end).
template <typename F>
HWY_INLINE void ForChannelVectors(int64_t begin, int64_t end, const F& visit) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(Wide()));
  for (int64_t c = begin; c < end; c += lanes) {
    visit(c, static_cast<size_t>(HWY_MIN(lanes, end - c)));
  }
}

HWY_INLINE WideV DeviationOf(const float* variance, float epsilon, size_t n) {
  return hn::Sqrt(hn::Add(LoadWide(variance, n),
                          hn::Set(Wide(), static_cast<double>(epsilon))));
}

template <typename T>
void ApplyRowsOf(const BatchNormShape& shape, int64_t images, float epsilon,
                 const T* x, const float* gamma, const float* beta,
                 const float* mean, const float* variance, T* y, int64_t begin,
                 int64_t end) {
  const Narrow d;
  ForChannelVectors(begin, end, [&](int64_t c, size_t n) HWY_ATTR {
    float scales[hn::MaxLanes(Narrow())] = {};
    float shifts[hn::MaxLanes(Narrow())] = {};
    for (size_t i = 0; i < n; ++i) {
      const norm::Coefficients k =
          norm::CoefficientsOf(epsilon, mean[c + static_cast<int64_t>(i)],
                               variance[c + static_cast<int64_t>(i)],
                               gamma[c + static_cast<int64_t>(i)],
                               beta[c + static_cast<int64_t>(i)]);
      scales[i] = k.scale;
      shifts[i] = k.shift;
    }
    const auto scale = hn::LoadU(d, scales);
    const auto shift = hn::LoadU(d, shifts);
    for (int64_t i = 0; i < images; ++i) {
      const int64_t at = i * shape.channels + c;
      StoreSome(hn::MulAdd(LoadSome(x + at, n), scale, shift), y + at, n);
    }
  });
}

template <typename T>
void TrainRowsOf(const BatchNormShape& shape, int64_t images, float epsilon,
                 const T* x, const float* gamma, const float* beta, T* y,
                 float* mean, float* variance, int64_t begin, int64_t end) {
  const Wide d;
  const WideV per_image = hn::Set(d, 1.0 / static_cast<double>(images));
  ForChannelVectors(begin, end, [&](int64_t c, size_t n) HWY_ATTR {
    WideV sum = hn::Zero(d);
    for (int64_t i = 0; i < images; ++i) {
      sum = hn::Add(sum, LoadWide(x + i * shape.channels + c, n));
    }
    const WideV center = hn::Mul(sum, per_image);
    WideV squares = hn::Zero(d);
    for (int64_t i = 0; i < images; ++i) {
      const WideV v = LoadWide(x + i * shape.channels + c, n);
      const WideV off = hn::Sub(v, center);
      squares = hn::MulAdd(off, off, squares);
    }
    StoreNarrow(center, mean + c, n);
    StoreNarrow(hn::Mul(squares, per_image), variance + c, n);
  });
  ApplyRowsOf(shape, images, epsilon, x, gamma, beta, mean, variance, y, begin,
              end);
}

template <typename T>
void GradRowsOf(const BatchNormShape& shape, int64_t images, float epsilon,
                const T* x, const float* gamma, const float* mean,
                const float* variance, const T* grad_y, T* grad_x,
                float* grad_gamma, float* grad_beta, bool accumulate,
                int64_t begin, int64_t end) {
  const Wide d;
  const WideV per_image = hn::Set(d, 1.0 / static_cast<double>(images));
  ForChannelVectors(begin, end, [&](int64_t c, size_t n) HWY_ATTR {
    const WideV center = LoadWide(mean + c, n);
    const WideV deviation = DeviationOf(variance + c, epsilon, n);
    WideV sum_g = hn::Zero(d);
    WideV sum_gx = sum_g;
    for (int64_t i = 0; i < images; ++i) {
      const int64_t at = i * shape.channels + c;
      const WideV g = LoadWide(grad_y + at, n);
      sum_g = hn::Add(sum_g, g);
      sum_gx = hn::MulAdd(g, hn::Sub(LoadWide(x + at, n), center), sum_gx);
    }
    const WideV sum_gn = hn::Div(sum_gx, deviation);  // Σ g x̂
    StoreSum(sum_g, accumulate, grad_beta + c, n);
    StoreSum(sum_gn, accumulate, grad_gamma + c, n);
    if (grad_x == nullptr) return;
    const WideV factor = hn::Div(LoadWide(gamma + c, n), deviation);
    const WideV offset = hn::Mul(sum_g, per_image);
    const WideV slope = hn::Div(hn::Mul(sum_gn, per_image), deviation);
    for (int64_t i = 0; i < images; ++i) {
      const int64_t at = i * shape.channels + c;
      const WideV base = hn::Sub(LoadWide(grad_y + at, n), offset);
      const WideV off = hn::Sub(LoadWide(x + at, n), center);
      const WideV inner = hn::NegMulAdd(off, slope, base);
      StoreNarrow(hn::Mul(factor, inner), grad_x + at, n);
    }
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
