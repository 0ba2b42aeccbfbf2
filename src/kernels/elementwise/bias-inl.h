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

#include "kernels/convert-inl.h"
#include "kernels/elements-inl.h"
#include "kernels/stage-inl.h"
#include "kernels/storage.h"
#include "kernels/tensor.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

// total += the sum of n elements, for each of kPlanes planes in index order: a
// vector of partial sums each, folded at the end. Planes are summed beside each
// other, so that one addition does not wait for the last.
template <size_t kPlanes, typename T>
HWY_INLINE void AddPlanes(size_t n, size_t stride, const T* x, float& total) {
  const D d;
  const size_t lanes = hn::Lanes(d);
  V sum[kPlanes];
  THIMBLE_UNROLL
  for (size_t p = 0; p < kPlanes; ++p) sum[p] = hn::Zero(d);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    THIMBLE_UNROLL
    for (size_t p = 0; p < kPlanes; ++p) {
      sum[p] = hn::Add(sum[p], LoadAs(d, x + p * stride + i));
    }
  }
  if (i < n) {
    THIMBLE_UNROLL
    for (size_t p = 0; p < kPlanes; ++p) {
      sum[p] = hn::Add(sum[p], LoadFirstAs(d, x + p * stride + i, n - i));
    }
  }
  THIMBLE_UNROLL
  for (size_t p = 0; p < kPlanes; ++p) {
    total += hn::GetLane(hn::SumOfLanes(d, sum[p]));
  }
}

// One channel: planes of n elements of all images, `stride` apart.
float SumChannel(size_t images, size_t stride, size_t n, const ConstTensor& x) {
  constexpr size_t kPlanes = 4;
  float total = 0.0f;
  WithFloatType(x.dtype(), [&](auto type) HWY_ATTR {
    const auto* from = x.As<decltype(type)>();
    size_t i = 0;
    for (; i + kPlanes <= images; i += kPlanes) {
      AddPlanes<kPlanes>(n, stride, from + i * stride, total);
    }
    for (; i < images; ++i) AddPlanes<1>(n, stride, from + i * stride, total);
  });
  return total;
}

// sums += kRows rows of n channels, in index order. Sums can be read and
// written up to a whole vector.
template <size_t kRows, typename T>
HWY_INLINE void AddRows(size_t n, size_t stride, const T* x, float* sums) {
  const D d;
  const size_t lanes = hn::Lanes(d);
  size_t c = 0;
  for (; c + lanes <= n; c += lanes) {
    V sum = hn::LoadU(d, sums + c);
    THIMBLE_UNROLL
    for (size_t r = 0; r < kRows; ++r) {
      sum = hn::Add(sum, LoadAs(d, x + r * stride + c));
    }
    hn::StoreU(sum, d, sums + c);
  }
  if (c == n) return;
  V sum = hn::LoadU(d, sums + c);
  THIMBLE_UNROLL
  for (size_t r = 0; r < kRows; ++r) {
    sum = hn::Add(sum, LoadFirstAs(d, x + r * stride + c, n - c));
  }
  hn::StoreU(sum, d, sums + c);
}

// Rows of one pixel: n channels of every image, lanes over channels. Sums of
// kColumns channels stay in the cache while whole stretches of rows go by.
// `addend` may be null.
template <typename T>
HWY_INLINE void SumRowsOf(size_t images, size_t stride, size_t n, const T* x,
                          const float* addend, float* sums) {
  constexpr size_t kColumns = 2048;
  constexpr size_t kRows = 4;
  for (size_t c = 0; c < n; c += kColumns) {
    HWY_ALIGN float part[kColumns] = {};
    const size_t count = HWY_MIN(n - c, kColumns);
    size_t i = 0;
    for (; i + kRows <= images; i += kRows) {
      AddRows<kRows>(count, stride, x + i * stride + c, part);
    }
    for (; i < images; ++i) AddRows<1>(count, stride, x + i * stride + c, part);
    for (size_t k = 0; k < count; ++k) {
      sums[c + k] = addend == nullptr ? part[k] : addend[c + k] + part[k];
    }
  }
}

void SumRows(size_t images, size_t stride, size_t n, const ConstTensor& x,
             const float* addend, float* sums) {
  WithFloatType(x.dtype(), [&](auto type) HWY_ATTR {
    SumRowsOf(images, stride, n, x.As<decltype(type)>(), addend, sums);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
