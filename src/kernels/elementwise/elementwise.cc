// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/elementwise/elementwise.cc"
#include "kernels/elementwise/elementwise.h"

#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <algorithm>

#include "kernels/elementwise/bias-inl.h"
#include "kernels/elementwise/dropout-inl.h"
#include "kernels/simd-inl.h"
#include "kernels/target.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// y[i] = f(in[i]...) over [0, n): whole vectors, then a masked one, so that
// nothing past n is read or written.
template <typename F, typename... In>
HWY_INLINE void Map(size_t n, const F& f, float* y, const In*... in) {
  const D d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(f(hn::LoadU(d, in + i)...), d, y + i);
  }
  if (i == n) return;
  StoreFirst(f(LoadFirst(d, in + i, n - i)...), d, y + i, n - i);
}

void AddRange(size_t n, const float* a, const float* b, float* y) {
  Map(
      n, [](V u, V v) HWY_ATTR { return hn::Add(u, v); }, y, a, b);
}

// The comparison, unlike Max, keeps a NaN: a diverged run must show.
HWY_INLINE V ReluOf(V x) {
  return hn::IfThenZeroElse(hn::Lt(x, hn::Zero(D())), x);
}

void ReluRange(size_t n, const float* x, float* y) {
  Map(
      n, [](V v) HWY_ATTR { return ReluOf(v); }, y, x);
}

void ReluGradRange(size_t n, const float* y, const float* grad_y,
                   float* grad_x) {
  Map(
      n,
      [](V out, V grad) HWY_ATTR {
        return hn::IfThenElseZero(hn::Gt(out, hn::Zero(D())), grad);
      },
      grad_x, y, grad_y);
}

// Eight elements are one byte of the mask, so this works on vectors of at most
// eight lanes: the mask's bytes are then whole.
using D8 = hn::CappedTag<float, 8>;

// relu of n <= Lanes elements; the bits of those above 0, from bit 0 on.
HWY_INLINE uint8_t ReluBits(size_t n, const float* x, float* y) {
  const D8 d;
  const bool whole = n >= hn::Lanes(d);
  const auto v = whole ? hn::LoadU(d, x) : LoadFirst(d, x, n);
  uint8_t stored[8];
  hn::StoreMaskBits(d, hn::Gt(v, hn::Zero(d)), stored);
  const auto out = hn::IfThenZeroElse(hn::Lt(v, hn::Zero(d)), v);
  if (whole) {
    hn::StoreU(out, d, y);
  } else {
    StoreFirst(out, d, y, n);
  }
  return stored[0];
}

void ReluWithMaskRange(size_t n, const float* x, float* y, uint8_t* mask) {
  const size_t lanes = hn::Lanes(D8());
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    uint8_t bits = 0;
    for (size_t part = 0; part < 8; part += lanes) {
      bits = static_cast<uint8_t>(
          bits | (ReluBits(lanes, x + i + part, y + i + part) << part));
    }
    mask[i / 8] = bits;
  }
  if (i == n) return;
  uint8_t bits = 0;
  for (size_t part = 0; i + part < n; part += lanes) {
    const size_t count = HWY_MIN(n - i - part, lanes);
    bits = static_cast<uint8_t>(
        bits | (ReluBits(count, x + i + part, y + i + part) << part));
  }
  mask[i / 8] = bits;
}

// The gradients of n <= Lanes elements, of which the bits begin at bit 0.
HWY_INLINE void ReluGradBits(size_t n, uint8_t bits, const float* grad_y,
                             float* grad_x) {
  const D8 d;
  const uint8_t readable[8] = {bits};  // LoadMaskBits may read eight bytes
  const auto on = hn::LoadMaskBits(d, readable);
  if (n >= hn::Lanes(d)) {
    hn::StoreU(hn::IfThenElseZero(on, hn::LoadU(d, grad_y)), d, grad_x);
  } else {
    StoreFirst(hn::IfThenElseZero(on, LoadFirst(d, grad_y, n)), d, grad_x, n);
  }
}

void ReluGradFromMaskRange(size_t n, const uint8_t* mask, const float* grad_y,
                           float* grad_x) {
  const size_t lanes = hn::Lanes(D8());
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    for (size_t part = 0; part < 8; part += lanes) {
      ReluGradBits(lanes, static_cast<uint8_t>(mask[i / 8] >> part),
                   grad_y + i + part, grad_x + i + part);
    }
  }
  for (size_t part = 0; i + part < n; part += lanes) {
    ReluGradBits(HWY_MIN(n - i - part, lanes),
                 static_cast<uint8_t>(mask[i / 8] >> part), grad_y + i + part,
                 grad_x + i + part);
  }
}

void NormalizeU8Plane(size_t n, const uint8_t* x, float scale, float shift,
                      float* y) {
  const D d;
  const hn::Rebind<uint8_t, D> d8;
  const hn::Rebind<int32_t, D> d32;
  const size_t lanes = hn::Lanes(d);
  const V s = hn::Set(d, scale);
  const V t = hn::Set(d, shift);
  const auto convert = [&](auto bytes) HWY_ATTR {
    return hn::MulAdd(hn::ConvertTo(d, hn::PromoteTo(d32, bytes)), s, t);
  };
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(convert(hn::LoadU(d8, x + i)), d, y + i);
  }
  if (i == n) return;
  HWY_ALIGN uint8_t rest[HWY_MAX_BYTES] = {};
  for (size_t k = 0; i + k < n; ++k) rest[k] = x[i + k];
  StoreFirst(convert(hn::LoadU(d8, rest)), d, y + i, n - i);
}

void AddScalarRange(size_t n, const float* x, float bias, float* y) {
  const V b = hn::Set(D(), bias);
  Map(
      n, [b](V v) HWY_ATTR { return hn::Add(v, b); }, y, x);
}

}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace thimble::kernels {
namespace {

// Elements per block of work: a multiple of 8, so that each byte of a mask has
// one writer.
constexpr int64_t kBlock = 4096;

// Calls run(begin, count) for blocks of [0, n), spread over the threads.
template <typename F>
void ForBlocks(int64_t n, const KernelContext& context, const F& run) {
  context.pool->ParallelFor(
      (n + kBlock - 1) / kBlock, [&](int64_t begin, int64_t end, int) {
        const int64_t first = begin * kBlock;
        const int64_t last = end * kBlock < n ? end * kBlock : n;
        run(first, static_cast<size_t>(last - first));
      });
}

}  // namespace

void Add(int64_t n, ConstTensor a, ConstTensor b, Tensor y,
         const KernelContext& context) {
  const float* a_f32 = a.f32();
  const float* b_f32 = b.f32();
  float* y_f32 = y.f32();
  const auto run = THIMBLE_DISPATCH(AddRange).Get();
  ForBlocks(n, context, [&](int64_t i, size_t count) {
    run(count, a_f32 + i, b_f32 + i, y_f32 + i);
  });
}

void Relu(int64_t n, ConstTensor x, Tensor y, const KernelContext& context) {
  const float* x_f32 = x.f32();
  float* y_f32 = y.f32();
  const auto run = THIMBLE_DISPATCH(ReluRange).Get();
  ForBlocks(n, context,
            [&](int64_t i, size_t count) { run(count, x_f32 + i, y_f32 + i); });
}

void ReluWithMask(int64_t n, ConstTensor x, Tensor y, uint8_t* mask,
                  const KernelContext& context) {
  const float* x_f32 = x.f32();
  float* y_f32 = y.f32();
  const auto run = THIMBLE_DISPATCH(ReluWithMaskRange).Get();
  ForBlocks(n, context, [&](int64_t i, size_t count) {
    run(count, x_f32 + i, y_f32 + i, mask + i / 8);
  });
}

void ReluGradFromOutput(int64_t n, ConstTensor y, ConstTensor grad_y,
                        Tensor grad_x, const KernelContext& context) {
  const float* y_f32 = y.f32();
  const float* grad_y_f32 = grad_y.f32();
  float* grad_x_f32 = grad_x.f32();
  const auto run = THIMBLE_DISPATCH(ReluGradRange).Get();
  ForBlocks(n, context, [&](int64_t i, size_t count) {
    run(count, y_f32 + i, grad_y_f32 + i, grad_x_f32 + i);
  });
}

void ReluGradFromMask(int64_t n, const uint8_t* mask, ConstTensor grad_y,
                      Tensor grad_x, const KernelContext& context) {
  const float* grad_y_f32 = grad_y.f32();
  float* grad_x_f32 = grad_x.f32();
  const auto run = THIMBLE_DISPATCH(ReluGradFromMaskRange).Get();
  ForBlocks(n, context, [&](int64_t i, size_t count) {
    run(count, mask + i / 8, grad_y_f32 + i, grad_x_f32 + i);
  });
}

void Dropout(int64_t images, int64_t elements, const DropoutMask& mask,
             ConstTensor x, Tensor y, const KernelContext& context) {
  const float* x_f32 = x.f32();
  float* y_f32 = y.f32();
  const auto run = THIMBLE_DISPATCH(DropoutGroups).Get();
  constexpr auto kGroup = static_cast<int64_t>(kDropoutGroup);
  const int64_t groups = (elements + kGroup - 1) / kGroup;
  context.pool->ParallelFor(images * groups,
                            [&](int64_t begin, int64_t end, int) {
                              run(begin, end, elements, mask, x_f32, y_f32);
                            });
}

void NormalizeU8(int64_t images, int64_t channels, int64_t pixels,
                 const uint8_t* x, const float* scale, const float* shift,
                 Tensor y, const KernelContext& context) {
  float* y_f32 = y.f32();
  const auto run = THIMBLE_DISPATCH(NormalizeU8Plane).Get();
  context.pool->ParallelFor(
      images * channels, [&](int64_t begin, int64_t end, int) {
        for (int64_t plane = begin; plane < end; ++plane) {
          run(static_cast<size_t>(pixels), x + plane * pixels,
              scale[plane % channels], shift[plane % channels],
              y_f32 + plane * pixels);
        }
      });
}

void NormalizeU8Slice(int64_t images, int64_t channels, int64_t pixels,
                      int64_t begin, int64_t count, const uint8_t* x,
                      const float* scale, const float* shift, Tensor y,
                      const KernelContext& context) {
  float* y_f32 = y.f32();
  const auto run = THIMBLE_DISPATCH(NormalizeU8Plane).Get();
  context.pool->ParallelFor(images, [&](int64_t first, int64_t last, int) {
    for (int64_t image = first; image < last; ++image) {
      const uint8_t* from = x + image * channels * pixels;
      float* to = y_f32 + image * count;
      // The parts of the slice that lie in one channel each.
      for (int64_t at = begin; at < begin + count;) {
        const int64_t c = at / pixels;
        const int64_t stop = std::min((c + 1) * pixels, begin + count);
        run(static_cast<size_t>(stop - at), from + at, scale[c], shift[c],
            to + at - begin);
        at = stop;
      }
    }
  });
}

void BiasAdd(int64_t images, int64_t channels, int64_t pixels, ConstTensor x,
             ConstTensor bias, Tensor y, const KernelContext& context) {
  const float* x_f32 = x.f32();
  const float* bias_f32 = bias.f32();
  float* y_f32 = y.f32();
  const auto add = THIMBLE_DISPATCH(AddRange).Get();
  const auto add_scalar = THIMBLE_DISPATCH(AddScalarRange).Get();
  context.pool->ParallelFor(images, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t at = i * channels * pixels;
      if (pixels == 1) {
        add(static_cast<size_t>(channels), x_f32 + at, bias_f32, y_f32 + at);
        continue;
      }
      for (int64_t c = 0; c < channels; ++c) {
        add_scalar(static_cast<size_t>(pixels), x_f32 + at + c * pixels,
                   bias_f32[c], y_f32 + at + c * pixels);
      }
    }
  });
}

void BiasGrad(int64_t images, int64_t channels, int64_t pixels,
              ConstTensor grad_y, ConstTensor addend, Tensor grad_bias,
              const KernelContext& context) {
  const float* grad_y_f32 = grad_y.f32();
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
                   static_cast<size_t>(last - first), grad_y_f32 + first,
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
          static_cast<size_t>(pixels), grad_y_f32 + c * pixels);
      grad_bias_f32[c] = addend_f32 == nullptr ? total : addend_f32[c] + total;
    }
  });
}

}  // namespace thimble::kernels
#endif  // HWY_ONCE
