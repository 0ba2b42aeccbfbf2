// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/shortcut/shortcut.cc"
#include "kernels/shortcut/shortcut.h"

#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <atomic>
#include <cstddef>
#include <cstring>

#include "base/check.h"
#include "kernels/simd-inl.h"
#include "kernels/storage.h"
#include "kernels/target.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// f16 and bf16 are moved as bits. Pairs of them are the lanes of Pairs.
using Pairs = hn::RebindToUnsigned<D>;
using D16 = hn::Repartition<uint16_t, Pairs>;
using Half16 = hn::Rebind<uint16_t, Pairs>;

// y[i] = x[2i] for i < n; x has width ≥ 2n − 1 elements.
HWY_INLINE void TakeEveryOther(size_t n, size_t width, const float* x,
                               float* y) {
  const D d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; 2 * (i + lanes) <= width; i += lanes) {
    V even, odd;
    hn::LoadInterleaved2(d, x + 2 * i, even, odd);
    hn::StoreU(even, d, y + i);
  }
  if (i == n) return;
  // At most 2 * lanes − 1 elements are left.
  const size_t left = width - 2 * i;
  const V first =
      left >= lanes ? hn::LoadU(d, x + 2 * i) : LoadFirst(d, x + 2 * i, left);
  const V second = left > lanes ? LoadFirst(d, x + 2 * i + lanes, left - lanes)
                                : hn::Zero(d);
  const V even = hn::ConcatEven(d, second, first);
  if (n - i == lanes) {
    hn::StoreU(even, d, y + i);
  } else {
    StoreFirst(even, d, y + i, n - i);
  }
}

// The even one of a pair is the lower half of its bits.
HWY_INLINE void TakeEveryOther(size_t n, size_t width, const uint16_t* x,
                               uint16_t* y) {
  const Pairs d;
  const hn::RebindToSigned<Pairs> di;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; 2 * (i + lanes) <= width; i += lanes) {
    const auto pairs = hn::BitCast(d, hn::LoadU(D16(), x + 2 * i));
    const auto even = hn::And(pairs, hn::Set(d, 0xFFFFu));
    hn::StoreU(hn::DemoteTo(Half16(), hn::BitCast(di, even)), Half16(), y + i);
  }
  for (; i < n; ++i) y[i] = x[2 * i];
}

// x[2i] = y[i] and zeros between, for `width` elements of x.
HWY_INLINE void SpreadToEveryOther(size_t n, size_t width, const float* y,
                                   float* x) {
  const D d;
  const size_t lanes = hn::Lanes(d);
  const V zero = hn::Zero(d);
  size_t i = 0;
  for (; 2 * (i + lanes) <= width; i += lanes) {
    hn::StoreInterleaved2(hn::LoadU(d, y + i), zero, d, x + 2 * i);
  }
  if (i == n) return;
  const V last =
      n - i == lanes ? hn::LoadU(d, y + i) : LoadFirst(d, y + i, n - i);
  HWY_ALIGN float staged[2 * hn::MaxLanes(d)];
  hn::StoreInterleaved2(last, zero, d, staged);
  std::memcpy(x + 2 * i, staged, (width - 2 * i) * sizeof(float));
}

HWY_INLINE void SpreadToEveryOther(size_t n, size_t width, const uint16_t* y,
                                   uint16_t* x) {
  const Pairs d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; 2 * (i + lanes) <= width; i += lanes) {
    const auto pairs = hn::PromoteTo(d, hn::LoadU(Half16(), y + i));
    hn::StoreU(hn::BitCast(D16(), pairs), D16(), x + 2 * i);
  }
  for (; i < n; ++i) {
    x[2 * i] = y[i];
    if (2 * i + 1 < width) x[2 * i + 1] = 0;
  }
}

// y[i] = x[i * stride] for i < n.
HWY_INLINE void TakeStrided(size_t n, size_t stride, const float* x, float* y) {
  const D d;
  const hn::RebindToSigned<D> di;
  const size_t lanes = hn::Lanes(d);
  const auto at =
      hn::Mul(hn::Iota(di, 0), hn::Set(di, static_cast<int32_t>(stride)));
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(hn::GatherIndex(d, x + i * stride, at), d, y + i);
  }
  for (; i < n; ++i) y[i] = x[i * stride];
}

HWY_INLINE void TakeStrided(size_t n, size_t stride, const uint16_t* x,
                            uint16_t* y) {
  for (size_t i = 0; i < n; ++i) y[i] = x[i * stride];
}

// x[i * stride] = y[i] and zeros between. No target but AVX-512 scatters.
template <typename T>
HWY_INLINE void SpreadStrided(size_t n, size_t stride, size_t width, const T* y,
                              T* x) {
  std::memset(x, 0, width * sizeof(T));
  for (size_t i = 0; i < n; ++i) x[i * stride] = y[i];
}

// n zeros. Not memset: rows are short, and its calls would take longer.
template <typename T>
HWY_INLINE void StoreZeros(size_t n, T* x) {
  const hn::ScalableTag<T> d;
  const size_t lanes = hn::Lanes(d);
  if (n < lanes) {
    for (size_t i = 0; i < n; ++i) x[i] = T{0};
    return;
  }
  const auto zero = hn::Zero(d);
  for (size_t i = 0; i < n - lanes; i += lanes) {
    hn::StoreU(zero, d, x + i);
    // For the compiler alone, which would call memset for the loop.
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  hn::StoreU(zero, d, x + n - lanes);
}

// What lies `ahead` of the rows is read next: rows that are skipped in between
// keep the CPU from seeing that.
template <typename T>
HWY_INLINE void SamplePlaneOf(const ShortcutShape& shape, const T* x,
                              ptrdiff_t ahead, T* y) {
  constexpr size_t kLine = 64 / sizeof(T);
  const auto n = static_cast<size_t>(shape.out_width());
  const auto width = static_cast<size_t>(shape.width);
  const auto stride = static_cast<size_t>(shape.stride);
  const auto rows = static_cast<size_t>(shape.out_height());
  for (size_t h = 0; h < rows; ++h) {
    const T* row = x + h * stride * width;
    for (size_t w = 0; w < width; w += kLine) {
      hwy::Prefetch(row + w + ahead);
    }
    if (stride == 2) {
      TakeEveryOther(n, width, row, y + h * n);
    } else {
      TakeStrided(n, stride, row, y + h * n);
    }
  }
}

template <typename T>
HWY_INLINE void SpreadPlaneOf(const ShortcutShape& shape, const T* y, T* x) {
  const auto n = static_cast<size_t>(shape.out_width());
  const auto width = static_cast<size_t>(shape.width);
  const auto stride = static_cast<size_t>(shape.stride);
  const auto height = static_cast<size_t>(shape.height);
  for (size_t h = 0; h < height; h += stride) {
    if (stride == 2) {
      SpreadToEveryOther(n, width, y, x);
    } else {
      SpreadStrided(n, stride, width, y, x);
    }
    const size_t rows = HWY_MIN(stride, height - h);
    StoreZeros((rows - 1) * width, x + width);
    y += n;
    x += rows * width;
  }
}

// Calls run(from, to) with pointers to elements of the tensors' size.
template <typename F>
HWY_INLINE void WithBits(const ConstTensor& from, const Tensor& to,
                         const F& run) {
  WithFloatType(to.dtype(), [&](auto type) HWY_ATTR {
    if constexpr (sizeof(type) == sizeof(float)) {
      run(from.f32(), to.f32());
    } else {
      run(from.halves(to.dtype()), to.halves(to.dtype()));
    }
  });
}

// Output planes [begin, end), counted over all images.
void SamplePlanes(const ShortcutShape& shape, int64_t begin, int64_t end,
                  const ConstTensor& x, const Tensor& y) {
  const int64_t in = shape.height * shape.width;
  const int64_t out = shape.out_height() * shape.out_width();
  WithBits(x, y, [&](const auto* from, auto* to) HWY_ATTR {
    for (int64_t p = begin; p < end; ++p) {
      const int64_t i = p / shape.out_channels;
      const int64_t c = p % shape.out_channels;
      const auto* plane = from + (i * shape.in_channels + c) * in;
      const auto size = static_cast<size_t>(out);
      if (c >= shape.in_channels) {
        StoreZeros(size, to + p * out);
      } else if (shape.stride == 1) {
        std::memcpy(to + p * out, plane, size * sizeof(*to));
      } else {
        const bool more = c + 1 < shape.in_channels;
        SamplePlaneOf(shape, plane, more ? in : 0, to + p * out);
      }
    }
  });
}

// Input planes [begin, end), counted over all images.
void SpreadPlanes(const ShortcutShape& shape, int64_t begin, int64_t end,
                  const ConstTensor& y, const Tensor& x) {
  const int64_t in = shape.height * shape.width;
  const int64_t out = shape.out_height() * shape.out_width();
  WithBits(y, x, [&](const auto* from, auto* to) HWY_ATTR {
    for (int64_t p = begin; p < end; ++p) {
      const int64_t i = p / shape.in_channels;
      const int64_t c = p % shape.in_channels;
      const auto* plane = from + (i * shape.out_channels + c) * out;
      const auto size = static_cast<size_t>(in);
      if (c >= shape.out_channels) {
        StoreZeros(size, to + p * in);
      } else if (shape.stride == 1) {
        std::memcpy(to + p * in, plane, size * sizeof(*to));
      } else {
        SpreadPlaneOf(shape, plane, to + p * in);
      }
    }
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace thimble::kernels {

void Shortcut(const ShortcutShape& shape, int64_t images, ConstTensor x,
              Tensor y, const KernelContext& context) {
  TH_CHECK(x.dtype() == y.dtype());
  const auto run = THIMBLE_DISPATCH(SamplePlanes).Get();
  context.pool->ParallelFor(
      images * shape.out_channels,
      [&](int64_t begin, int64_t end, int) { run(shape, begin, end, x, y); });
}

void ShortcutGrad(const ShortcutShape& shape, int64_t images,
                  ConstTensor grad_y, Tensor grad_x,
                  const KernelContext& context) {
  TH_CHECK(grad_y.dtype() == grad_x.dtype());
  const auto run = THIMBLE_DISPATCH(SpreadPlanes).Get();
  context.pool->ParallelFor(images * shape.in_channels,
                            [&](int64_t begin, int64_t end, int) {
                              run(shape, begin, end, grad_y, grad_x);
                            });
}

}  // namespace thimble::kernels
#endif  // HWY_ONCE
