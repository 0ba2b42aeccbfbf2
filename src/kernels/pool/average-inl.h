// SPDX-License-Identifier: Apache-2.0
//
// The SIMD body of average pooling forward for one plane of f32, as those of
// pool-inl.h.
// Included once per SIMD target; hence no `#pragma once`.
#if defined(THIMBLE_KERNELS_POOL_AVERAGE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef THIMBLE_KERNELS_POOL_AVERAGE_INL_H_
#undef THIMBLE_KERNELS_POOL_AVERAGE_INL_H_
#else
#define THIMBLE_KERNELS_POOL_AVERAGE_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <type_traits>

#include "kernels/elements-inl.h"
#include "kernels/pool/plane.h"
#include "kernels/pool/pool-inl.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

// Sums of a vector of windows of stride 2, of which the first begins at `from`
// and has `rows` rows. Each place of the windows is a load in which every other
// lane counts; they are taken together once, at the end. load(p) gives what can
// be read of a vector at p.
template <typename N, typename Load>
HWY_INLINE V SumEveryOther(const float* from, N rows, N kernel, int64_t width,
                           const Load& load) {
  const D d;
  const int64_t lanes = LaneCount();
  V lower = hn::Zero(d), upper = lower;
  for (int64_t h = 0; h < rows; ++h) {
    for (int64_t w = 0; w < kernel; ++w) {
      lower = hn::Add(lower, load(from + h * width + w));
      upper = hn::Add(upper, load(from + h * width + w + lanes));
    }
  }
  return hn::ConcatEven(d, upper, lower);
}

// The same up to `end`: fast where windows of kKernel and all loads are whole.
template <int kKernel>
HWY_INLINE V SumEveryOtherOf(const float* from, int64_t rows, int64_t kernel,
                             int64_t width, const float* end) {
  constexpr std::integral_constant<int64_t, kKernel> whole;
  const D d;
  const int64_t span = (rows - 1) * width + 2 * LaneCount() + kernel - 1;
  if (rows == whole && end - from >= span) {
    return SumEveryOther(from, whole, whole, width,
                         [&](const float* p)
                             HWY_ATTR { return hn::LoadU(d, p); });
  }
  return SumEveryOther(from, rows, kernel, width, [&](const float* p) HWY_ATTR {
    if (p >= end) return hn::Zero(d);
    return LoadUpTo(p, static_cast<size_t>(end - p));
  });
}

// The same for any stride, and n windows.
template <int kStride>
HWY_INLINE V SumWindows(const PoolPlane& s, const float* from, int64_t rows,
                        size_t n, const float* end) {
  V sum = hn::Zero(D());
  for (int64_t h = 0; h < rows; ++h, from += s.width) {
    for (int64_t w = 0; w < s.kernel; ++w) {
      sum = hn::Add(sum, LoadStrided<kStride>(from + w, s.stride, n, end));
    }
  }
  return sum;
}

// kKernel is the kernel, or 0 for any.
template <int kStride, int kKernel>
HWY_INLINE void AveragePlane(const PoolPlane& s, const float* x, float* y) {
  const D d;
  const float scale = 1.0f / static_cast<float>(s.kernel * s.kernel);
  const float* end = x + s.height * s.width;
  const float* y_end = y + s.out_height * s.out_width;
  const Range columns = InnerColumns(s);
  for (int64_t oh = 0; oh < s.out_height; ++oh) {
    const Range kh = PlacesOf(s, oh, s.top, s.height);
    float* out = y + oh * s.out_width;
    const auto inner = [&](int64_t ow, size_t n) HWY_ATTR {
      const float* from = x + (CornerOf(s, oh, ow) + kh.begin * s.width);
      const V sum = kStride == 2
                        ? SumEveryOtherOf<kKernel>(from, kh.size(), s.kernel,
                                                   s.width, end)
                        : SumWindows<kStride>(s, from, kh.size(), n, end);
      StoreInPlane(hn::Mul(sum, hn::Set(d, scale)), out + ow, n, y_end);
    };
    ForColumns(s, columns, inner, [&](int64_t ow) HWY_ATTR {
      const Range kw = PlacesOf(s, ow, s.left, s.width);
      float sum = 0.0f;
      for (int64_t h = kh.begin; h < kh.end; ++h) {
        const int64_t row = CornerOf(s, oh, ow) + h * s.width;
        for (int64_t w = kw.begin; w < kw.end; ++w) sum += x[row + w];
      }
      out[ow] = sum * scale;
    });
  }
}

// Where IsOfPairs: each element is read once. Sums are in the order of
// AveragePlane's, 0 first.
HWY_INLINE void AveragePlaneOfPairs(const PoolPlane& s, const float* x,
                                    float* y) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t out_width = s.out_width;
  const float* end = x + s.height * s.width;
  const float* y_end = y + s.out_height * out_width;
  const V quarter = hn::Set(d, 0.25f);
  for (int64_t oh = 0; oh < s.out_height; ++oh) {
    const float* top = x + 2 * oh * s.width;
    for (int64_t ow = 0; ow < out_width; ow += lanes) {
      const auto n = static_cast<size_t>(HWY_MIN(lanes, out_width - ow));
      V a0, a1, b0, b1;
      LoadPairsInPlane(top + 2 * ow, 2 * n, end, a0, a1);
      LoadPairsInPlane(top + s.width + 2 * ow, 2 * n, end, b0, b1);
      const V top_sum = hn::Add(hn::Add(hn::Zero(d), a0), a1);
      const V sum = hn::Add(hn::Add(top_sum, b0), b1);
      StoreInPlane(hn::Mul(sum, quarter), y + oh * out_width + ow, n, y_end);
    }
  }
}

void AveragePoolPlane(const PoolPlane& plane, const float* x, float* y) {
  if (IsOfPairs(plane)) {
    AveragePlaneOfPairs(plane, x, y);
  } else if (plane.stride == 1) {
    AveragePlane<1, 0>(plane, x, y);
  } else if (plane.stride != 2) {
    AveragePlane<0, 0>(plane, x, y);
  } else if (plane.kernel == 3) {
    AveragePlane<2, 3>(plane, x, y);
  } else {
    AveragePlane<2, 0>(plane, x, y);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
