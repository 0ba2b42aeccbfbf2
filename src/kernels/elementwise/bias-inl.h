// SPDX-License-Identifier: Apache-2.0
//
// Sums of gradients for each channel. Included once per SIMD target, after
// <hwy/highway.h>; hence no `#pragma once`.
#if defined(THIMBLE_KERNELS_BIAS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef THIMBLE_KERNELS_BIAS_INL_H_
#undef THIMBLE_KERNELS_BIAS_INL_H_
#else
#define THIMBLE_KERNELS_BIAS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>

#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// total += the sum of n elements, for each of kPlanes planes in index order: a
// vector of partial sums each, folded at the end. Planes are summed beside each
// other, so that one addition does not wait for the last.
template <size_t kPlanes>
HWY_INLINE void AddPlanes(size_t n, size_t stride, const float* x,
                          float& total) {
  const D d;
  const size_t lanes = hn::Lanes(d);
  V sum[kPlanes];
  THIMBLE_UNROLL
  for (size_t p = 0; p < kPlanes; ++p) sum[p] = hn::Zero(d);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    THIMBLE_UNROLL
    for (size_t p = 0; p < kPlanes; ++p) {
      sum[p] = hn::Add(sum[p], hn::LoadU(d, x + p * stride + i));
    }
  }
  if (i < n) {
    THIMBLE_UNROLL
    for (size_t p = 0; p < kPlanes; ++p) {
      sum[p] = hn::Add(sum[p], LoadFirst(d, x + p * stride + i, n - i));
    }
  }
  THIMBLE_UNROLL
  for (size_t p = 0; p < kPlanes; ++p) {
    total += hn::GetLane(hn::SumOfLanes(d, sum[p]));
  }
}

// One channel: planes of n elements of all images, `stride` apart.
float SumChannel(size_t images, size_t stride, size_t n, const float* x) {
  constexpr size_t kPlanes = 4;
  float total = 0.0f;
  size_t i = 0;
  for (; i + kPlanes <= images; i += kPlanes) {
    AddPlanes<kPlanes>(n, stride, x + i * stride, total);
  }
  for (; i < images; ++i) AddPlanes<1>(n, stride, x + i * stride, total);
  return total;
}

// kVectors neighbouring vectors of channels, summed beside each other.
template <size_t kVectors>
HWY_INLINE void SumColumns(size_t images, size_t stride, const float* x,
                           const float* addend, float* sums) {
  const D d;
  const size_t lanes = hn::Lanes(d);
  V sum[kVectors];
  THIMBLE_UNROLL
  for (size_t v = 0; v < kVectors; ++v) sum[v] = hn::Zero(d);
  for (size_t i = 0; i < images; ++i) {
    THIMBLE_UNROLL
    for (size_t v = 0; v < kVectors; ++v) {
      sum[v] = hn::Add(sum[v], hn::LoadU(d, x + i * stride + v * lanes));
    }
  }
  THIMBLE_UNROLL
  for (size_t v = 0; v < kVectors; ++v) {
    if (addend != nullptr) {
      sum[v] = hn::Add(hn::LoadU(d, addend + v * lanes), sum[v]);
    }
    hn::StoreU(sum[v], d, sums + v * lanes);
  }
}

// Rows of one pixel: n channels of every image, lanes over channels. `addend`
// may be null.
void SumRows(size_t images, size_t stride, size_t n, const float* x,
             const float* addend, float* sums) {
  constexpr size_t kVectors = 4;
  const D d;
  const size_t lanes = hn::Lanes(d);
  const auto addend_at = [&](size_t c) {
    return addend == nullptr ? nullptr : addend + c;
  };
  size_t c = 0;
  for (; c + kVectors * lanes <= n; c += kVectors * lanes) {
    SumColumns<kVectors>(images, stride, x + c, addend_at(c), sums + c);
  }
  for (; c + lanes <= n; c += lanes) {
    SumColumns<1>(images, stride, x + c, addend_at(c), sums + c);
  }
  if (c == n) return;
  V sum = hn::Zero(d);
  for (size_t i = 0; i < images; ++i) {
    sum = hn::Add(sum, LoadFirst(d, x + i * stride + c, n - c));
  }
  if (addend != nullptr) sum = hn::Add(LoadFirst(d, addend + c, n - c), sum);
  StoreFirst(sum, d, sums + c, n - c);
}

}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
