// SPDX-License-Identifier: Apache-2.0
//
// Pooling of whole planes.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/pool/global.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <cstdint>

#include "base/check.h"
#include "kernels/elements-inl.h"
#include "kernels/lane_sums-inl.h"
#include "kernels/pool/pool.h"
#include "kernels/stage-inl.h"
#include "kernels/target.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

// Sums of n ≤ kPoolPiece elements, in lanes. N is size_t, or a constant.
template <typename N, typename T>
HWY_INLINE V SumPixels(N n, const T* x) {
  const D d;
  const size_t lanes = hn::Lanes(d);
  V a = hn::Zero(d), b = a, c = a, e = a;
  size_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    a = hn::Add(a, LoadAs(d, x + i));
    b = hn::Add(b, LoadAs(d, x + i + lanes));
    c = hn::Add(c, LoadAs(d, x + i + 2 * lanes));
    e = hn::Add(e, LoadAs(d, x + i + 3 * lanes));
  }
  for (; i + lanes <= n; i += lanes) a = hn::Add(a, LoadAs(d, x + i));
  if (i < n) b = hn::Add(b, LoadFirstAs(d, x + i, n - i));
  return hn::Add(hn::Add(a, b), hn::Add(c, e));
}

// The means of `few` planes, at most kTogether.
template <typename N, typename T>
HWY_INLINE void MeansOfFew(size_t few, N pixels, const T* x, float* means) {
  constexpr auto kPiece = static_cast<size_t>(kPoolPiece);
  const D d;
  const FewWide dw;
  const hn::Rebind<float, FewWide> df;
  HWY_ALIGN double totals[kTogether] = {};
  HWY_ALIGN float sums[kTogether];
  for (size_t p = 0; p < pixels; p += kPiece) {
    V parts[kTogether] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
    const auto sum = [&](size_t k) HWY_ATTR {
      if (pixels <= kPiece) {
        parts[k] = SumPixels(pixels, x + k * pixels);
      } else {
        parts[k] = SumPixels(HWY_MIN(kPiece, pixels - p), x + k * pixels + p);
      }
    };
    if (few == kTogether) {
      THIMBLE_UNROLL
      for (size_t k = 0; k < kTogether; ++k) sum(k);
    } else {
      for (size_t k = 0; k < few; ++k) sum(k);
    }
    hn::Store(SumsOfLanes(parts), Few(), sums);
    for (size_t k = 0; k < kTogether; k += hn::Lanes(dw)) {
      const auto more = LoadFewWide(sums + k);
      hn::Store(hn::Add(hn::Load(dw, totals + k), more), dw, totals + k);
    }
  }
  const ByPixels over(pixels);
  for (size_t k = 0; k < kTogether; k += hn::Lanes(dw)) {
    hn::Store(hn::DemoteTo(df, over(hn::Load(dw, totals + k))), df, means + k);
  }
}

HWY_INLINE void StoreOne(float value, float* p) { *p = value; }
template <typename T>
HWY_INLINE void StoreOne(float value, T* p) {
  StoreFirstAs(hn::Set(D(), value), D(), p, 1);
}

HWY_INLINE float LoadOne(const float* p) { return *p; }
template <typename T>
HWY_INLINE float LoadOne(const T* p) {
  return hn::GetLane(LoadFirstAs(D(), p, 1));
}

void MeansOfPlanes(int64_t planes, int64_t pixels, const ConstTensor& x,
                   const Tensor& y) {
  WithFloatType(y.dtype(), [&](auto type) HWY_ATTR {
    using T = decltype(type);
    const T* from = x.As<T>();
    T* to = y.As<T>();
    WithSize(static_cast<size_t>(pixels), [&](auto size) HWY_ATTR {
      constexpr auto kFew = static_cast<int64_t>(kTogether);
      HWY_ALIGN float means[kTogether];
      for (int64_t p = 0; p < planes; p += kFew) {
        const int64_t few = HWY_MIN(kFew, planes - p);
        MeansOfFew(static_cast<size_t>(few), size, from + p * pixels, means);
        for (int64_t k = 0; k < few; ++k) StoreOne(means[k], to + p + k);
      }
    });
  });
}

// One value all over a plane. `end` is that of all planes: where it leaves
// room, a whole vector is stored, which is faster than an exact one, and what
// it writes behind the plane is written again.
template <typename T>
HWY_INLINE void FillPlane(int64_t pixels, float value, T* x, const T* end) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const V v = hn::Set(d, value);
  for (int64_t p = 0; p < pixels; p += lanes) {
    if (end - (x + p) >= lanes) {
      StoreAs(v, d, x + p);
    } else {
      StoreFirstAs(v, d, x + p, static_cast<size_t>(pixels - p));
    }
  }
}

// values[p] / pixels all over plane p.
void SpreadOverPlanes(int64_t planes, int64_t pixels, const ConstTensor& values,
                      const Tensor& x) {
  WithFloatType(x.dtype(), [&](auto type) HWY_ATTR {
    using T = decltype(type);
    const T* from = values.As<T>();
    T* to = x.As<T>();
    const T* end = to + planes * pixels;
    for (int64_t p = 0; p < planes; ++p) {
      FillPlane(pixels, LoadOne(from + p) / static_cast<float>(pixels),
                to + p * pixels, end);
    }
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace thimble::kernels {

void GlobalAveragePool(int64_t images, int64_t channels, int64_t pixels,
                       ConstTensor x, Tensor y, const KernelContext& context) {
  TH_CHECK(x.dtype() == y.dtype());
  const auto means = THIMBLE_DISPATCH(MeansOfPlanes).Get();
  context.pool->ParallelFor(
      images * channels, [&](int64_t begin, int64_t end, int) {
        means(end - begin, pixels, x.From(begin * pixels), y.From(begin));
      });
}

void GlobalAveragePoolGrad(int64_t images, int64_t channels, int64_t pixels,
                           ConstTensor grad_y, Tensor grad_x,
                           const KernelContext& context) {
  TH_CHECK(grad_y.dtype() == grad_x.dtype());
  const auto spread = THIMBLE_DISPATCH(SpreadOverPlanes).Get();
  context.pool->ParallelFor(images * channels,
                            [&](int64_t begin, int64_t end, int) {
                              spread(end - begin, pixels, grad_y.From(begin),
                                     grad_x.From(begin * pixels));
                            });
}

}  // namespace thimble::kernels
#endif  // HWY_ONCE
