// SPDX-License-Identifier: Apache-2.0
//
// SIMD bodies of pooling's gradients, each for one plane of f32. Each input
// gathers from its windows, so that it is written once and overlapping windows
// need no adding in memory. Included once per SIMD target; hence no `#pragma
// once`.
#if defined(THIMBLE_KERNELS_POOL_GRAD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef THIMBLE_KERNELS_POOL_GRAD_INL_H_
#undef THIMBLE_KERNELS_POOL_GRAD_INL_H_
#else
#define THIMBLE_KERNELS_POOL_GRAD_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <cstring>

#include "kernels/elements-inl.h"
#include "kernels/pool/plane.h"
#include "kernels/pool/pool-inl.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

using pool::WindowsOver;

// What output (oh, ow) gives to the input at place (kh, kw) of its window.
// Lanes does so for as many outputs from (oh, ow) on as the plane still has;
// those of the next row are not meant, but a whole load is faster than an exact
// one.
struct MaxTerm {
  const float* grad_y;
  const uint8_t* winner;
  int64_t out_width;
  int64_t outputs;  // of the plane
  int64_t kernel;

  HWY_INLINE V Lanes(int64_t oh, int64_t kh, int64_t ow, int64_t kw) const {
    const int64_t at = oh * out_width + ow;
    const auto n = static_cast<size_t>(outputs - at);
    const V place = hn::Set(D(), static_cast<float>(kh * kernel + kw));
    return hn::IfThenElseZero(hn::Eq(LoadWinners(winner + at, n), place),
                              LoadUpTo(grad_y + at, n));
  }
  HWY_INLINE float At(int64_t oh, int64_t kh, int64_t ow, int64_t kw) const {
    const int64_t at = oh * out_width + ow;
    return winner[at] == kh * kernel + kw ? grad_y[at] : 0.0f;
  }
};

struct AverageTerm {
  const float* grad_y;
  float scale;
  int64_t out_width;
  int64_t outputs;

  HWY_INLINE V Lanes(int64_t oh, int64_t, int64_t ow, int64_t) const {
    const int64_t at = oh * out_width + ow;
    const auto n = static_cast<size_t>(outputs - at);
    return hn::Mul(LoadUpTo(grad_y + at, n), hn::Set(D(), scale));
  }
  HWY_INLINE float At(int64_t oh, int64_t, int64_t ow, int64_t) const {
    return grad_y[oh * out_width + ow] * scale;
  }
};

template <typename Term>
HWY_INLINE float GradAtBorder(const PoolPlane& s, const Term& term, int64_t h,
                              int64_t w, Range rows) {
  const Range columns = WindowsOver(s, w, s.left, s.out_width);
  float sum = 0.0f;
  for (int64_t oh = rows.begin; oh < rows.end; ++oh) {
    const int64_t kh = h + s.top - oh * s.stride;
    for (int64_t ow = columns.end - 1; ow >= columns.begin; --ow) {
      sum += term.At(oh, kh, ow, w + s.left - ow * s.stride);
    }
  }
  return sum;
}

// The gradients of the inputs q*stride + phase − left of row h, lanes
// over q: they lie at place phase + j*stride of window q − j.
template <int kStride, int kKernel, typename Term>
HWY_INLINE V GradOfPhase(const PoolPlane& s, const Term& term, int64_t h,
                         Range rows, int64_t q, int64_t phase) {
  const int64_t kernel = kKernel == 0 ? s.kernel : kKernel;
  const int64_t stride = kStride == 0 ? s.stride : kStride;
  V sum = hn::Zero(D());
  for (int64_t oh = rows.begin; oh < rows.end; ++oh) {
    const int64_t kh = h + s.top - oh * stride;
    for (int64_t ow = q, kw = phase; kw < kernel; --ow, kw += stride) {
      sum = hn::Add(sum, term.Lanes(oh, kh, ow, kw));
    }
  }
  return sum;
}

// Stores first[0], second[0], first[1], … : n pairs, as StoreInPlane.
HWY_INLINE void StorePairs(V first, V second, float* to, size_t n,
                           const float* end) {
  const D d;
  if (static_cast<size_t>(end - to) >= 2 * hn::Lanes(d)) {
    hn::StoreInterleaved2(first, second, d, to);
    return;
  }
  HWY_ALIGN float staged[2 * hn::MaxLanes(d)];
  hn::StoreInterleaved2(first, second, d, staged);
  std::memcpy(to, staged, 2 * n * sizeof(float));
}

// Stores the gradients of all phases for n lanes of q, from `to` on.
template <int kStride, int kKernel, typename Term>
HWY_INLINE void StorePhases(const PoolPlane& s, const Term& term, int64_t h,
                            Range rows, int64_t q, size_t n, float* to,
                            const float* end) {
  const D d;
  const V first = GradOfPhase<kStride, kKernel>(s, term, h, rows, q, 0);
  if constexpr (kStride == 1) {
    StoreInPlane(first, to, n, end);
    return;
  }
  if constexpr (kStride == 2) {
    StorePairs(first, GradOfPhase<kStride, kKernel>(s, term, h, rows, q, 1), to,
               n, end);
    return;
  }
  HWY_ALIGN float staged[hn::MaxLanes(d)];
  for (int64_t phase = 0; phase < s.stride; ++phase) {
    hn::Store(GradOfPhase<kStride, kKernel>(s, term, h, rows, q, phase), d,
              staged);
    for (size_t i = 0; i < n; ++i) {
      to[static_cast<int64_t>(i) * s.stride + phase] = staged[i];
    }
  }
}

// kKernel is the kernel, or 0 for any.
template <int kStride, int kKernel, typename Term>
HWY_INLINE void GradPlane(const PoolPlane& s, const Term& term, float* grad_x) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(D()));
  // Lanes take the q whose windows q − j all exist and whose inputs of every
  // phase are in the row.
  const int64_t reach = (s.kernel - 1) / s.stride;
  const int64_t left = (s.left + s.stride - 1) / s.stride;
  const int64_t begin = HWY_MAX(reach, left);
  const int64_t end = HWY_MIN(s.out_width, (s.width + s.left) / s.stride);
  const bool any = begin < end;
  const int64_t first = any ? begin * s.stride - s.left : s.width;
  const int64_t last = any ? end * s.stride - s.left : s.width;
  const float* plane_end = grad_x + s.height * s.width;
  for (int64_t h = 0; h < s.height; ++h) {
    const Range rows = WindowsOver(s, h, s.top, s.out_height);
    float* row = grad_x + h * s.width;
    for (int64_t w = 0; w < first; ++w) {
      row[w] = GradAtBorder(s, term, h, w, rows);
    }
    for (int64_t q = begin; q < end; q += lanes) {
      StorePhases<kStride, kKernel>(
          s, term, h, rows, q, static_cast<size_t>(HWY_MIN(lanes, end - q)),
          row + (q * s.stride - s.left), plane_end);
    }
    for (int64_t w = last; w < s.width; ++w) {
      row[w] = GradAtBorder(s, term, h, w, rows);
    }
  }
}

template <typename Term>
HWY_INLINE void GradPlaneOfAnyStride(const PoolPlane& plane, const Term& term,
                                     float* grad_x) {
  if (plane.stride == 1) {
    GradPlane<1, 0>(plane, term, grad_x);
  } else if (plane.stride == 2 && plane.kernel == 3) {
    GradPlane<2, 3>(plane, term, grad_x);
  } else if (plane.stride == 2) {
    GradPlane<2, 0>(plane, term, grad_x);
  } else {
    GradPlane<0, 0>(plane, term, grad_x);
  }
}

// Where IsOfPairs: an input has one window. gradients(h, ow,
// even, odd) makes those of the columns 2 ow, 2 ow + 2, … and 2 ow + 1, … of
// row h. A row is written to its end before the next one begins, so that what
// is stored past the end is written again.
template <typename F>
HWY_INLINE void GradPlaneOfPairs(const PoolPlane& s, float* grad_x,
                                 const F& gradients) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(D()));
  const int64_t out_width = s.out_width;
  const float* end = grad_x + s.height * s.width;
  for (int64_t h = 0; h < 2 * s.out_height; ++h) {
    float* row = grad_x + h * s.width;
    for (int64_t ow = 0; ow < out_width; ow += lanes) {
      const auto n = static_cast<size_t>(HWY_MIN(lanes, out_width - ow));
      V even, odd;
      gradients(h, ow, even, odd);
      StorePairs(even, odd, row + 2 * ow, n, end);
    }
    if (s.width % 2 != 0) row[s.width - 1] = 0.0f;
  }
  if (s.height % 2 != 0) {
    std::memset(grad_x + (s.height - 1) * s.width, 0,
                static_cast<size_t>(s.width) * sizeof(float));
  }
}

HWY_INLINE void MaxGradPlaneOfPairs(const PoolPlane& s, const MaxTerm& term,
                                    float* grad_x) {
  GradPlaneOfPairs(s, grad_x,
                   [&](int64_t h, int64_t ow, V& even, V& odd) HWY_ATTR {
                     even = term.Lanes(h / 2, h % 2, ow, 0);
                     odd = term.Lanes(h / 2, h % 2, ow, 1);
                   });
}

// Where IsOfPairs: a gradient goes to four inputs. As a sum from 0 on, like
// GradOfPhase's, which has no negative zeros. Where rows have whole vectors,
// the last one of a row ends where the row does.
HWY_INLINE void AverageGradPlaneOfPairs(const PoolPlane& s, const float* grad_y,
                                        float scale, float* grad_x) {
  const D d;
  const int64_t lanes = LaneCount();
  const int64_t out_width = s.out_width;
  const int64_t columns = HWY_MIN(lanes, out_width);
  const float* y_end = grad_y + s.out_height * out_width;
  const float* end = grad_x + s.height * s.width;
  const V factor = hn::Set(d, scale);
  for (int64_t oh = 0; oh < s.out_height; ++oh) {
    const float* from = grad_y + oh * out_width;
    float* rows[2] = {grad_x + 2 * oh * s.width,
                      grad_x + (2 * oh + 1) * s.width};
    for (int64_t at = 0; at < out_width; at += lanes) {
      const int64_t ow = HWY_MIN(at, out_width - columns);
      const V v = LoadUpTo(from + ow, static_cast<size_t>(y_end - from - ow));
      const V grad = hn::Add(hn::Zero(d), hn::Mul(v, factor));
      for (float* row : rows) {
        StorePairs(grad, grad, row + 2 * ow, static_cast<size_t>(columns), end);
        if (s.width % 2 != 0) row[s.width - 1] = 0.0f;
      }
    }
  }
  if (s.height % 2 != 0) {
    std::memset(grad_x + (s.height - 1) * s.width, 0,
                static_cast<size_t>(s.width) * sizeof(float));
  }
}

void MaxPoolGradPlane(const PoolPlane& plane, const uint8_t* winner,
                      const float* grad_y, float* grad_x) {
  const MaxTerm term{grad_y, winner, plane.out_width,
                     plane.out_height * plane.out_width, plane.kernel};
  if (IsOfPairs(plane)) {
    MaxGradPlaneOfPairs(plane, term, grad_x);
  } else {
    GradPlaneOfAnyStride(plane, term, grad_x);
  }
}

void AveragePoolGradPlane(const PoolPlane& plane, const float* grad_y,
                          float* grad_x) {
  const float scale = 1.0f / static_cast<float>(plane.kernel * plane.kernel);
  const AverageTerm term{grad_y, scale, plane.out_width,
                         plane.out_height * plane.out_width};
  if (IsOfPairs(plane)) {
    AverageGradPlaneOfPairs(plane, grad_y, scale, grad_x);
  } else {
    GradPlaneOfAnyStride(plane, term, grad_x);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
