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
#include <type_traits>

#include "kernels/conv/rows-inl.h"
#include "kernels/conv/winograd.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3

using EightWeights = hn::FixedTag<float, 8>;

// Four weights at `from`, four at `upper`.
template <typename T>
HWY_INLINE hn::Vec<EightWeights> LoadTwoFours(const T* from, const T* upper) {
  const EightWeights d;
  if constexpr (std::is_same_v<T, float>) {
    const hn::FixedTag<float, 4> half;
    return hn::Combine(d, hn::LoadU(half, upper), hn::LoadU(half, from));
  } else {
    const hn::FixedTag<uint16_t, 4> half;
    const hn::FixedTag<uint16_t, 8> both;
    return FromBits(d, T(),
                    hn::Combine(both, hn::LoadU(half, &upper->bits),
                                hn::LoadU(half, &from->bits)));
  }
}

// Row kSlice of G w for two outputs, whose nine weights lie at `from` and
// `upper`: three columns and a fourth lane without meaning, for each.
template <int64_t kSlice, typename T>
HWY_INLINE hn::Vec<EightWeights> SliceRow(const T* from, const T* upper) {
  const EightWeights d;
  const auto at = [&](int64_t tap) HWY_ATTR {
    return LoadTwoFours(from + tap, upper + tap);
  };
  if constexpr (kSlice == 0) return at(0);
  // Nothing is read past the ninth.
  const auto last = hn::Shuffle0321(at(5));
  if constexpr (kSlice == 3) return last;
  const auto sides = hn::Add(at(0), last);
  const auto both = kSlice == 1 ? hn::Add(sides, at(3)) : hn::Sub(sides, at(3));
  return hn::Mul(both, hn::Set(d, 0.5f));
}

// Eight outputs of one channel, `stride` elements apart: [column of the slice]
// [output] for the first four at `to`, for the others at `upper`. With
// `flipped`, columns of the kernel are in reverse.
template <int64_t kSlice, typename T>
HWY_INLINE void TransformEight(const T* from, int64_t stride, bool flipped,
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
template <int64_t kSlice, typename T>
HWY_INLINE void TransformEights(const T* from, int64_t stride,
                                int64_t channel_stride, int64_t channels,
                                bool flipped, float* to, float* upper) {
  for (int64_t c = 0; c < channels; ++c) {
    TransformEight<kSlice>(from + c * channel_stride, stride, flipped,
                           to + 16 * c, upper + 16 * c);
  }
}

template <typename T>
void TransformSlice(int64_t slice, const T* from, int64_t stride,
                    int64_t channel_stride, int64_t channels, bool flipped,
                    float* to, float* upper) {
  // A kernel upside down is the same but for the first and the last slice.
  if (flipped && slice % 3 == 0) slice = 3 - slice;
  const auto run = slice == 0   ? &TransformEights<0, T>
                   : slice == 1 ? &TransformEights<1, T>
                   : slice == 2 ? &TransformEights<2, T>
                                : &TransformEights<3, T>;
  run(from, stride, channel_stride, channels, flipped, to, upper);
}

// Slice `slice` of channels [channel, channel + channels) and outputs [output,
// output + outputs): [4 outputs][channel][column of the slice][output].
void TransformWeights(const conv::WinogradPass& pass, const ConstTensor& w,
                      int64_t slice, int64_t output, int64_t outputs,
                      int64_t channel, int64_t channels, float* to) {
  WithFloatType(w.dtype(), [&](auto type) HWY_ATTR {
    using T = decltype(type);
    for (int64_t o = 0; o < outputs; o += 8) {
      const int64_t base =
          (output + o) * pass.output_weights + channel * pass.channel_weights;
      float* lower = to + o * channels * 4;
      TransformSlice(slice, w.As<T>() + base, pass.output_weights,
                     pass.channel_weights, channels, !pass.forward, lower,
                     lower + channels * 16);
    }
  });
}

#endif  // 8 lanes

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
