// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/shortcut/shortcut.cc"
#include "kernels/shortcut/shortcut.h"

#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <cstring>

#include "kernels/simd-inl.h"
#include "kernels/target.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

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

// x[i * stride] = y[i] and zeros between. No target but AVX-512 scatters.
HWY_INLINE void SpreadStrided(size_t n, size_t stride, size_t width,
                              const float* y, float* x) {
  std::memset(x, 0, width * sizeof(float));
  for (size_t i = 0; i < n; ++i) x[i * stride] = y[i];
}

void SamplePlane(const ShortcutShape& shape, const float* x, float* y) {
  const auto n = static_cast<size_t>(shape.out_width());
  const auto width = static_cast<size_t>(shape.width);
  for (int64_t h = 0; h < shape.out_height(); ++h) {
    const float* row = x + h * shape.stride * shape.width;
    if (shape.stride == 2) {
      TakeEveryOther(n, width, row, y + h * shape.out_width());
    } else {
      TakeStrided(n, static_cast<size_t>(shape.stride), row,
                  y + h * shape.out_width());
    }
  }
}

void SpreadPlane(const ShortcutShape& shape, const float* y, float* x) {
  const auto n = static_cast<size_t>(shape.out_width());
  const auto width = static_cast<size_t>(shape.width);
  for (int64_t h = 0; h < shape.height; ++h, x += shape.width) {
    if (h % shape.stride != 0) {
      std::memset(x, 0, width * sizeof(float));
    } else if (shape.stride == 2) {
      SpreadToEveryOther(n, width, y, x);
      y += shape.out_width();
    } else {
      SpreadStrided(n, static_cast<size_t>(shape.stride), width, y, x);
      y += shape.out_width();
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace thimble::kernels {

void Shortcut(const ShortcutShape& shape, int64_t images, ConstTensor x,
              Tensor y, const KernelContext& context) {
  const float* x_f32 = x.f32();
  float* y_f32 = y.f32();
  const auto sample = THIMBLE_DISPATCH(SamplePlane).Get();
  const int64_t in = shape.height * shape.width;
  const int64_t out = shape.out_height() * shape.out_width();
  const size_t bytes = static_cast<size_t>(out) * sizeof(float);
  context.pool->ParallelFor(
      images * shape.out_channels, [&](int64_t begin, int64_t end, int) {
        for (int64_t p = begin; p < end; ++p) {
          const int64_t i = p / shape.out_channels;
          const int64_t c = p % shape.out_channels;
          const float* from = x_f32 + (i * shape.in_channels + c) * in;
          if (c >= shape.in_channels) {
            std::memset(y_f32 + p * out, 0, bytes);
          } else if (shape.stride == 1) {
            std::memcpy(y_f32 + p * out, from, bytes);
          } else {
            sample(shape, from, y_f32 + p * out);
          }
        }
      });
}

void ShortcutGrad(const ShortcutShape& shape, int64_t images,
                  ConstTensor grad_y, Tensor grad_x,
                  const KernelContext& context) {
  const float* grad_y_f32 = grad_y.f32();
  float* grad_x_f32 = grad_x.f32();
  const auto spread = THIMBLE_DISPATCH(SpreadPlane).Get();
  const int64_t in = shape.height * shape.width;
  const int64_t out = shape.out_height() * shape.out_width();
  const size_t bytes = static_cast<size_t>(in) * sizeof(float);
  context.pool->ParallelFor(
      images * shape.in_channels, [&](int64_t begin, int64_t end, int) {
        for (int64_t p = begin; p < end; ++p) {
          const int64_t i = p / shape.in_channels;
          const int64_t c = p % shape.in_channels;
          const float* from = grad_y_f32 + (i * shape.out_channels + c) * out;
          if (c >= shape.out_channels) {
            std::memset(grad_x_f32 + p * in, 0, bytes);
          } else if (shape.stride == 1) {
            std::memcpy(grad_x_f32 + p * in, from, bytes);
          } else {
            spread(shape, from, grad_x_f32 + p * in);
          }
        }
      });
}

}  // namespace thimble::kernels
#endif  // HWY_ONCE
