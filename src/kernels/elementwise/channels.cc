// SPDX-License-Identifier: Apache-2.0
//
// The elementwise kernels that have a number for each channel.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/elementwise/channels.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <algorithm>

#include "base/check.h"
#include "kernels/elements-inl.h"
#include "kernels/elementwise/bias-inl.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/stage-inl.h"
#include "kernels/target.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

void NormalizeU8Plane(size_t n, const uint8_t* x, float scale, float shift,
                      const Tensor& y) {
  const V s = hn::Set(D(), scale);
  const V t = hn::Set(D(), shift);
  const auto normalize = [s, t](V v) HWY_ATTR { return hn::MulAdd(v, s, t); };
  WithFloatType(y.dtype(), [&](auto type) HWY_ATTR {
    Map(n, normalize, y.As<decltype(type)>(), x);
  });
}

// A row of features: one of `bias` for each.
void AddBiasRow(size_t n, const ConstTensor& x, const float* bias,
                const Tensor& y) {
  const auto add = [](V u, V v) HWY_ATTR { return hn::Add(u, v); };
  WithFloatType(y.dtype(), [&](auto type) HWY_ATTR {
    using T = decltype(type);
    Map(n, add, y.As<T>(), x.As<T>(), bias);
  });
}

// A plane: one bias for all.
void AddBiasPlane(size_t n, const ConstTensor& x, float bias, const Tensor& y) {
  const V b = hn::Set(D(), bias);
  const auto add = [b](V v) HWY_ATTR { return hn::Add(v, b); };
  WithFloatType(y.dtype(), [&](auto type) HWY_ATTR {
    using T = decltype(type);
    Map(n, add, y.As<T>(), x.As<T>());
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace thimble::kernels {

void NormalizeU8(int64_t images, int64_t channels, int64_t pixels,
                 const uint8_t* x, const float* scale, const float* shift,
                 Tensor y, const KernelContext& context) {
  const auto run = THIMBLE_DISPATCH(NormalizeU8Plane).Get();
  context.pool->ParallelFor(
      images * channels, [&](int64_t begin, int64_t end, int) {
        for (int64_t plane = begin; plane < end; ++plane) {
          run(static_cast<size_t>(pixels), x + plane * pixels,
              scale[plane % channels], shift[plane % channels],
              y.From(plane * pixels));
        }
      });
}

void NormalizeU8Slice(int64_t images, int64_t channels, int64_t pixels,
                      int64_t begin, int64_t count, const uint8_t* x,
                      const float* scale, const float* shift, Tensor y,
                      const KernelContext& context) {
  const auto run = THIMBLE_DISPATCH(NormalizeU8Plane).Get();
  context.pool->ParallelFor(images, [&](int64_t first, int64_t last, int) {
    for (int64_t image = first; image < last; ++image) {
      const uint8_t* from = x + image * channels * pixels;
      const Tensor to = y.From(image * count);
      // The parts of the slice that lie in one channel each.
      for (int64_t at = begin; at < begin + count;) {
        const int64_t c = at / pixels;
        const int64_t stop = std::min((c + 1) * pixels, begin + count);
        run(static_cast<size_t>(stop - at), from + at, scale[c], shift[c],
            to.From(at - begin));
        at = stop;
      }
    }
  });
}

void BiasAdd(int64_t images, int64_t channels, int64_t pixels, ConstTensor x,
             ConstTensor bias, Tensor y, const KernelContext& context) {
  TH_CHECK(x.dtype() == y.dtype());
  const float* bias_f32 = bias.f32();
  const auto add_row = THIMBLE_DISPATCH(AddBiasRow).Get();
  const auto add_plane = THIMBLE_DISPATCH(AddBiasPlane).Get();
  context.pool->ParallelFor(images, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t at = i * channels * pixels;
      if (pixels == 1) {
        add_row(static_cast<size_t>(channels), x.From(at), bias_f32,
                y.From(at));
        continue;
      }
      for (int64_t c = 0; c < channels; ++c) {
        add_plane(static_cast<size_t>(pixels), x.From(at + c * pixels),
                  bias_f32[c], y.From(at + c * pixels));
      }
    }
  });
}

void BiasGrad(int64_t images, int64_t channels, int64_t pixels,
              ConstTensor grad_y, ConstTensor addend, Tensor grad_bias,
              const KernelContext& context) {
  const float* addend_f32 = addend.f32();
  float* grad_bias_f32 = grad_bias.f32();
  if (pixels == 1) {
    // Lanes run over channels; blocks of them keep each sum with one thread.
    constexpr int64_t kChannels = 64;
    const auto sum_rows = THIMBLE_DISPATCH(SumRows).Get();
    context.pool->ParallelFor(
        (channels + kChannels - 1) / kChannels,
        [&](int64_t begin, int64_t end, int) {
          const int64_t first = begin * kChannels;
          const int64_t last =
              end * kChannels < channels ? end * kChannels : channels;
          sum_rows(static_cast<size_t>(images), static_cast<size_t>(channels),
                   static_cast<size_t>(last - first), grad_y.From(first),
                   addend_f32 == nullptr ? nullptr : addend_f32 + first,
                   grad_bias_f32 + first);
        });
    return;
  }
  const auto sum = THIMBLE_DISPATCH(SumChannel).Get();
  context.pool->ParallelFor(channels, [&](int64_t begin, int64_t end, int) {
    for (int64_t c = begin; c < end; ++c) {
      const float total = sum(
          static_cast<size_t>(images), static_cast<size_t>(channels * pixels),
          static_cast<size_t>(pixels), grad_y.From(c * pixels));
      grad_bias_f32[c] = addend_f32 == nullptr ? total : addend_f32[c] + total;
    }
  });
}

}  // namespace thimble::kernels
#endif  // HWY_ONCE
