// SPDX-License-Identifier: Apache-2.0
//
// Transformed weights of Winograd's convolution (winograd.h). Included once per
// SIMD target, after <hwy/highway.h>; hence no `#pragma once`.
#if defined(THIMBLE_KERNELS_CONV_WINOGRAD_WEIGHTS_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef THIMBLE_KERNELS_CONV_WINOGRAD_WEIGHTS_INL_H_
#undef THIMBLE_KERNELS_CONV_WINOGRAD_WEIGHTS_INL_H_
#else
#define THIMBLE_KERNELS_CONV_WINOGRAD_WEIGHTS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "kernels/conv/rows-inl.h"
#include "kernels/conv/winograd.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3

using EightWeights = hn::FixedTag<float, 8>;

// Row kSlice of G w for two outputs, whose nine weights lie at `from` and
// `upper`: three columns and a fourth lane without meaning, for each.
template <int64_t kSlice>
HWY_INLINE hn::Vec<EightWeights> SliceRow(const float* from,
                                          const float* upper) {
  const EightWeights d;
  const hn::FixedTag<float, 4> half;
  const auto at = [&](int64_t tap) HWY_ATTR {
    return hn::Combine(d, hn::LoadU(half, upper + tap),
                       hn::LoadU(half, from + tap));
  };
  if constexpr (kSlice == 0) return at(0);
  // Nothing is read past the ninth.
  const auto last = hn::Shuffle0321(at(5));
  if constexpr (kSlice == 3) return last;
  const auto sides = hn::Add(at(0), last);
  const auto both = kSlice == 1 ? hn::Add(sides, at(3)) : hn::Sub(sides, at(3));
  return hn::Mul(both, hn::Set(d, 0.5f));
}

// Eight outputs of one channel, `stride` floats apart: [column of the slice]
// [output] for the first four at `to`, for the others at `upper`. With
// `flipped`, columns of the kernel are in reverse.
template <int64_t kSlice>
HWY_INLINE void TransformEight(const float* from, int64_t stride, bool flipped,
                               float* to, float* upper) {
  const EightWeights d;
  const hn::FixedTag<float, 4> half;
  const hn::FixedTag<double, 4> wide;
  const auto row = [&](int64_t o) HWY_ATTR {
    return SliceRow<kSlice>(from + o * stride, from + (o + 4) * stride);
  };
  const auto r0 = row(0), r1 = row(1), r2 = row(2), r3 = row(3);
  const auto low01 = hn::BitCast(wide, hn::InterleaveLower(d, r0, r1));
  const auto low23 = hn::BitCast(wide, hn::InterleaveLower(d, r2, r3));
  const auto high01 = hn::BitCast(wide, hn::InterleaveUpper(d, r0, r1));
  const auto high23 = hn::BitCast(wide, hn::InterleaveUpper(d, r2, r3));
  const auto first = hn::BitCast(d, hn::InterleaveLower(wide, low01, low23));
  const auto middle = hn::BitCast(d, hn::InterleaveUpper(wide, low01, low23));
  const auto last = hn::BitCast(d, hn::InterleaveLower(wide, high01, high23));
  const auto store = [&](auto v, int64_t column) HWY_ATTR {
    hn::StoreU(hn::LowerHalf(half, v), half, to + 4 * column);
    hn::StoreU(hn::UpperHalf(half, v), half, upper + 4 * column);
  };
  const auto sides = hn::Add(first, last);
  const auto a_half = hn::Set(d, 0.5f);
  store(first, flipped ? 3 : 0);
  store(hn::Mul(hn::Add(sides, middle), a_half), 1);
  store(hn::Mul(hn::Sub(sides, middle), a_half), 2);
  store(last, flipped ? 0 : 3);
}

// `channels` channels of eight outputs.
template <int64_t kSlice>
HWY_INLINE void TransformEights(const float* from, int64_t stride,
                                int64_t channel_stride, int64_t channels,
                                bool flipped, float* to, float* upper) {
  for (int64_t c = 0; c < channels; ++c) {
    TransformEight<kSlice>(from + c * channel_stride, stride, flipped,
                           to + 16 * c, upper + 16 * c);
  }
}

void TransformSlice(int64_t slice, const float* from, int64_t stride,
                    int64_t channel_stride, int64_t channels, bool flipped,
                    float* to, float* upper) {
  // A kernel upside down is the same but for the first and the last slice.
  if (flipped && slice % 3 == 0) slice = 3 - slice;
  const auto run = slice == 0   ? &TransformEights<0>
                   : slice == 1 ? &TransformEights<1>
                   : slice == 2 ? &TransformEights<2>
                                : &TransformEights<3>;
  run(from, stride, channel_stride, channels, flipped, to, upper);
}

// Slice `slice` of channels [channel, channel + channels) and outputs [output,
// output + outputs): [4 outputs][channel][column of the slice][output]. Weights
// that are not f32 go through `line`, a few at a time.
void TransformWeights(const conv::WinogradPass& pass, const ConstTensor& w,
                      int64_t slice, int64_t output, int64_t outputs,
                      int64_t channel, int64_t channels, float* line,
                      float* to) {
  const bool flipped = !pass.forward;
  for (int64_t o = 0; o < outputs; o += 8) {
    const int64_t base =
        (output + o) * pass.output_weights + channel * pass.channel_weights;
    float* lower = to + o * channels * 4;
    float* upper = lower + channels * 16;
    if (w.dtype() == DType::kF32) {
      TransformSlice(slice, w.f32() + base, pass.output_weights,
                     pass.channel_weights, channels, flipped, lower, upper);
      continue;
    }
    const Conv2dInput input{.x = w};
    for (int64_t c = 0; c < channels; c += 8) {
      const int64_t n = HWY_MIN(int64_t{8}, channels - c);
      const int64_t at = base + c * pass.channel_weights;
      if (pass.forward) {  // neighbouring channels are neighbours in memory
        for (int64_t i = 0; i < 8; ++i) {
          ReadRow(input, 0, at + i * pass.output_weights, n * 9,
                  line + i * n * 9);
        }
      } else {  // neighbouring outputs are
        for (int64_t i = 0; i < n; ++i) {
          ReadRow(input, 0, at + i * pass.channel_weights, 72, line + i * 72);
        }
      }
      TransformSlice(slice, line, pass.forward ? n * 9 : 9,
                     pass.forward ? 9 : 72, n, flipped, lower + 16 * c,
                     upper + 16 * c);
    }
  }
}

#endif  // 8 lanes

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
