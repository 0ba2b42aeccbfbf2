// SPDX-License-Identifier: Apache-2.0
//
// Weights in the order in which the grouped convolution's register tiles read
// them. Included once per SIMD target, after <hwy/highway.h>; hence no
// `#pragma once`.
#if defined(THIMBLE_KERNELS_CONV_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef THIMBLE_KERNELS_CONV_PACK_INL_H_
#undef THIMBLE_KERNELS_CONV_PACK_INL_H_
#else
#define THIMBLE_KERNELS_CONV_PACK_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "kernels/conv/grouped.h"
#include "kernels/conv/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3

// One block of outputs: tap t of channel c begins at places[t] + c * steps[t].
// The first `there` of `outputs` exist, zeros stand for the others.
struct PackPlan {
  int64_t taps = 0;
  int64_t outputs = 0;
  int64_t there = 0;
  int64_t places[9] = {};
  int64_t steps[9] = {};
};

// Four taps from `tap` on of four outputs, which lie `stride` apart.
HWY_INLINE void PackFour(const PackPlan& plan, const float* from,
                         int64_t stride, int64_t tap, int64_t channel,
                         float* to) {
  const hn::FixedTag<float, 4> d;
  const hn::FixedTag<double, 2> wide;
  const auto r0 = hn::LoadU(d, from + tap);
  const auto r1 = hn::LoadU(d, from + stride + tap);
  const auto r2 = hn::LoadU(d, from + 2 * stride + tap);
  const auto r3 = hn::LoadU(d, from + 3 * stride + tap);
  const auto low01 = hn::BitCast(wide, hn::InterleaveLower(d, r0, r1));
  const auto low23 = hn::BitCast(wide, hn::InterleaveLower(d, r2, r3));
  const auto high01 = hn::BitCast(wide, hn::InterleaveUpper(d, r0, r1));
  const auto high23 = hn::BitCast(wide, hn::InterleaveUpper(d, r2, r3));
  const auto store = [&](auto v, int64_t t) HWY_ATTR {
    hn::StoreU(hn::BitCast(d, v), d,
               to + plan.places[t] + channel * plan.steps[t]);
  };
  store(hn::InterleaveLower(wide, low01, low23), tap);
  store(hn::InterleaveUpper(wide, low01, low23), tap + 1);
  store(hn::InterleaveLower(wide, high01, high23), tap + 2);
  store(hn::InterleaveUpper(wide, high01, high23), tap + 3);
}

// One channel: `from` holds the taps of its outputs, `stride` floats apart.
HWY_INLINE void PackChannel(const PackPlan& plan, const float* from,
                            int64_t stride, int64_t channel, float* to) {
  int64_t o = 0;
  for (; o + 4 <= plan.there; o += 4) {
    int64_t tap = 0;
    for (; tap + 4 <= plan.taps; tap += 4) {
      PackFour(plan, from + o * stride, stride, tap, channel, to + o);
    }
    for (; tap < plan.taps; ++tap) {
      float* at = to + plan.places[tap] + channel * plan.steps[tap] + o;
      for (int64_t i = 0; i < 4; ++i) at[i] = from[(o + i) * stride + tap];
    }
  }
  for (; o < plan.outputs; ++o) {
    for (int64_t tap = 0; tap < plan.taps; ++tap) {
      to[plan.places[tap] + channel * plan.steps[tap] + o] =
          o < plan.there ? from[o * stride + tap] : 0.0f;
    }
  }
}

// Taps [tap, tap + 4) of eight outputs; only the last of them with kLast.
template <bool kLast>
HWY_INLINE void PackEight(const float* from, int64_t stride, int64_t tap,
                          float* const* to) {
  const hn::FixedTag<float, 8> d;
  const hn::FixedTag<float, 4> half;
  const hn::FixedTag<double, 4> wide;
  const auto row = [&](int64_t o) HWY_ATTR {
    const float* at = from + o * stride + tap;
    return hn::Combine(d, hn::LoadU(half, at + 4 * stride),
                       hn::LoadU(half, at));
  };
  const auto r0 = row(0), r1 = row(1), r2 = row(2), r3 = row(3);
  const auto high01 = hn::BitCast(wide, hn::InterleaveUpper(d, r0, r1));
  const auto high23 = hn::BitCast(wide, hn::InterleaveUpper(d, r2, r3));
  const auto store = [&](auto v, int64_t t) HWY_ATTR {
    hn::StoreU(hn::BitCast(d, v), d, to[tap + t]);
  };
  store(hn::InterleaveUpper(wide, high01, high23), 3);
  if constexpr (!kLast) {
    const auto low01 = hn::BitCast(wide, hn::InterleaveLower(d, r0, r1));
    const auto low23 = hn::BitCast(wide, hn::InterleaveLower(d, r2, r3));
    store(hn::InterleaveLower(wide, low01, low23), 0);
    store(hn::InterleaveUpper(wide, low01, low23), 1);
    store(hn::InterleaveLower(wide, high01, high23), 2);
  }
}

// Channels [0, channels) of 3x3 kernels of a whole block of eight outputs.
HWY_INLINE void PackNineByEight(const PackPlan& plan, const float* from,
                                int64_t stride, int64_t channel_stride,
                                int64_t channels, float* to) {
  float* at[9];
  for (int64_t t = 0; t < 9; ++t) at[t] = to + plan.places[t];
  for (int64_t c = 0; c < channels; ++c, from += channel_stride) {
    PackEight<false>(from, stride, 0, at);
    PackEight<false>(from, stride, 4, at);
    PackEight<true>(from, stride, 5, at);
    for (int64_t t = 0; t < 9; ++t) at[t] += plan.steps[t];
  }
}

// All channels of the block of outputs that begins at `first`. Weights that are
// not f32 go through `line`, a few channels at a time.
void PackBlock(const conv::GroupedPass& pass, const PackPlan& plan,
               const ConstTensor& w, int64_t first, float* line, float* to) {
  const int64_t base = first * pass.output_weights;
  if (w.dtype() == DType::kF32) {
    const float* from = w.f32() + base;
    if (plan.taps == 9 && plan.there == 8 && plan.outputs == 8) {
      PackNineByEight(plan, from, pass.output_weights, pass.channel_weights,
                      pass.channels, to);
      return;
    }
    for (int64_t c = 0; c < pass.channels; ++c) {
      PackChannel(plan, from + c * pass.channel_weights, pass.output_weights, c,
                  to);
    }
    return;
  }
  const Conv2dInput input{.x = w};
  const int64_t taps = plan.taps;
  if (!pass.forward) {  // neighbouring outputs are neighbours in memory
    for (int64_t c = 0; c < pass.channels; ++c) {
      ReadRow(input, 0, base + c * pass.channel_weights, plan.there * taps,
              line);
      PackChannel(plan, line, taps, c, to);
    }
    return;
  }
  constexpr int64_t kChannels = 8;
  for (int64_t c = 0; c < pass.channels; c += kChannels) {
    const int64_t n = HWY_MIN(kChannels, pass.channels - c);
    for (int64_t o = 0; o < plan.there; ++o) {
      ReadRow(input, 0, base + o * pass.output_weights + c * taps, n * taps,
              line + o * n * taps);
    }
    for (int64_t i = 0; i < n; ++i) {
      PackChannel(plan, line + i * taps, n * taps, c + i, to);
    }
  }
}

#endif  // 8 lanes

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
