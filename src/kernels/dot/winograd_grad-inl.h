// SPDX-License-Identifier: Apache-2.0
//
// The kernels of winograd_kernels.h for the gradient of the weights, and the
// table of all of them. Included once per build, by way of foreach_build.h;
// hence no `#pragma once`.
#if defined(THIMBLE_KERNELS_DOT_WINOGRAD_GRAD_INL_H_) == \
    defined(THIMBLE_DOT_TOGGLE)
#ifdef THIMBLE_KERNELS_DOT_WINOGRAD_GRAD_INL_H_
#undef THIMBLE_KERNELS_DOT_WINOGRAD_GRAD_INL_H_
#else
#define THIMBLE_KERNELS_DOT_WINOGRAD_GRAD_INL_H_
#endif

#include <cstdint>

#include "kernels/dot/lanes-inl.h"
#include "kernels/dot/winograd_kernels.h"
#include "kernels/dot/winograd_pass-inl.h"
#include "kernels/dot/winograd_rows-inl.h"

THIMBLE_DOT_BEGIN
namespace {

// Rows 1 and 2 of a strip's tiles are those of the outputs.
template <int64_t kWidth>
void TransposeRows(const dot::StripRows& rows, const dot::Planes& planes,
                   int64_t outputs, uint32_t* to) {
  for (int64_t a = 0; a < 2; ++a) {
    for (int64_t o = 0; o < outputs; o += 8) {
      Words r[8];
      if (a == 0) {
        for (int64_t i = 0; i < 8; ++i) PrefetchNext(planes, o + i);
      }
      THIMBLE_DOT_UNROLL
      for (int64_t i = 0; i < 8; ++i) {
        r[i] = LoadTileRow<kWidth>(rows, a + 1,
                                   planes.from + (o + i) * planes.plane);
      }
      TransposePairs8(r);
      THIMBLE_DOT_UNROLL
      for (int64_t i = 0; i < 8; ++i) {
        Store(r[i], to + ((a * 8 + i) * outputs + o) * 2);
      }
    }
  }
}

void TransposeGrad(const dot::StripRows& rows, const dot::Planes& planes,
                   int64_t outputs, uint32_t* to) {
  const auto run = rows.width == 32   ? &TransposeRows<32>
                   : rows.width == 16 ? &TransposeRows<16>
                                      : &TransposeRows<8>;
  run(rows, planes, outputs, to);
}

// Eight outputs, two tiles of each: left and right pixels of row kSlice of
// A grad_y.
template <int64_t kSlice>
THIMBLE_DOT_INLINE void GradRow(const uint32_t* upper, const uint32_t* lower,
                                Floats& left, Floats& right) {
  if constexpr (kSlice == 0 || kSlice == 3) {
    const Words v = LoadWords(kSlice == 0 ? upper : lower);
    left = Even(v);
    right = Odd(v);
  } else {
    const Words u = LoadWords(upper), l = LoadWords(lower);
    if constexpr (kSlice == 1) {
      left = Add(Even(u), Even(l));
      right = Add(Odd(u), Odd(l));
    } else {
      left = Sub(Even(u), Even(l));
      right = Sub(Odd(u), Odd(l));
    }
  }
}

template <int64_t kSlice>
void TransformGradSlice(const uint32_t* from, int64_t outputs, int64_t stride,
                        uint32_t* to) {
  const int64_t row = 16 * outputs;  // words
  for (int64_t i = 0; i < row; i += 2 * kLanes, to += kLanes) {
    Floats left[2], right[2];
    THIMBLE_DOT_UNROLL
    for (int64_t h = 0; h < 2; ++h) {
      const uint32_t* at = from + i + h * kLanes;
      GradRow<kSlice>(at, at + row, left[h], right[h]);
    }
    Store(Round(left[0], left[1]), to);
    Store(Round(Add(left[0], right[0]), Add(left[1], right[1])), to + stride);
    Store(Round(Sub(left[0], right[0]), Sub(left[1], right[1])),
          to + 2 * stride);
    Store(Round(right[0], right[1]), to + 3 * stride);
  }
}

void TransformGrad(const uint32_t* from, int64_t outputs, int64_t slice,
                   int64_t stride, uint32_t* to) {
  constexpr decltype(&TransformGradSlice<0>) kRun[4] = {
      &TransformGradSlice<0>, &TransformGradSlice<1>, &TransformGradSlice<2>,
      &TransformGradSlice<3>};
  kRun[slice](from, outputs, stride, to);
}

// kVectors vectors of outputs and kChannels channels.
template <int64_t kChannels, int64_t kVectors>
THIMBLE_DOT_INLINE void MultiplyTile(const uint32_t* grad,
                                     const uint32_t* tiles, int64_t outputs,
                                     int64_t stride, int64_t pairs,
                                     float* sums) {
  Floats acc[kChannels][kVectors];
  THIMBLE_DOT_UNROLL
  for (int64_t i = 0; i < kChannels * kVectors; ++i) {
    acc[i / kVectors][i % kVectors] = ZeroFloats();
  }
  for (int64_t p = 0; p < pairs; ++p, grad += outputs, ++tiles) {
    Words y[kVectors];
    THIMBLE_DOT_UNROLL
    for (int64_t v = 0; v < kVectors; ++v) y[v] = LoadWords(grad + v * kLanes);
    THIMBLE_DOT_UNROLL
    for (int64_t c = 0; c < kChannels; ++c) {
      const Words x = SetPair(tiles + c * stride);
      THIMBLE_DOT_UNROLL
      for (int64_t v = 0; v < kVectors; ++v)
        acc[c][v] = Dot(acc[c][v], y[v], x);
    }
  }
  THIMBLE_DOT_UNROLL
  for (int64_t c = 0; c < kChannels; ++c) {
    THIMBLE_DOT_UNROLL
    for (int64_t v = 0; v < kVectors; ++v) {
      float* to = sums + c * dot::GradSumStride(outputs) + v * kLanes;
      Store(Add(LoadFloats(to), acc[c][v]), to);
    }
  }
}

void MultiplyGrad(const uint32_t* grad, const uint32_t* tiles, int64_t outputs,
                  int64_t channels, int64_t stride, int64_t pairs,
                  float* sums) {
#if THIMBLE_DOT_IS_AVX2  // has half as many registers, each half as long
  constexpr int64_t kChannels = 4;
  constexpr int64_t kMostVectors = 1;
#else
  constexpr int64_t kChannels = 8;
  constexpr int64_t kMostVectors = 2;
#endif
  const int64_t step =
      outputs < kMostVectors * kLanes ? kLanes : kMostVectors * kLanes;
  for (int64_t c = 0; c < channels; c += kChannels) {
    for (int64_t o = 0; o < outputs; o += step) {
      const uint32_t* x = tiles + c * stride;
      float* to = sums + c * dot::GradSumStride(outputs) + o;
      if (step == kLanes) {
        MultiplyTile<kChannels, 1>(grad + o, x, outputs, stride, pairs, to);
      } else {
        MultiplyTile<kChannels, kMostVectors>(grad + o, x, outputs, stride,
                                              pairs, to);
      }
    }
  }
}

// G' s, or s G, of four.
THIMBLE_DOT_INLINE void FoldFour(const Floats (&s)[4], Floats (&to)[3]) {
  const Floats half = SetFloats(0.5f);
  const Floats sum = Mul(Add(s[1], s[2]), half);
  to[0] = Add(s[0], sum);
  to[1] = Mul(Sub(s[1], s[2]), half);
  to[2] = Sub(sum, s[3]);
}

void Fold(int64_t outputs, int64_t channels, float* line, float* sums) {
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t o = 0; o < outputs; o += kLanes) {
      const float* from = sums + c * dot::GradSumStride(outputs) + o;
      Floats rows[4][3];
      THIMBLE_DOT_UNROLL
      for (int64_t i = 0; i < 4; ++i) {
        Floats s[4];
        THIMBLE_DOT_UNROLL
        for (int64_t j = 0; j < 4; ++j) {
          s[j] = LoadFloats(from + (4 * i + j) * outputs);
        }
        FoldFour(s, rows[i]);
      }
      THIMBLE_DOT_UNROLL
      for (int kw = 0; kw < 3; ++kw) {
        const Floats s[4] = {rows[0][kw], rows[1][kw], rows[2][kw],
                             rows[3][kw]};
        Floats taps[3];
        FoldFour(s, taps);
        THIMBLE_DOT_UNROLL
        for (int kh = 0; kh < 3; ++kh) {
          Store(taps[kh], line + (3 * kh + kw) * outputs + o);
        }
      }
    }
    // What is read next lies past what is written here.
    std::memcpy(sums + c * 9 * outputs, line,
                static_cast<size_t>(9 * outputs) * sizeof(float));
  }
}

}  // namespace

static const dot::WinogradKernels& WinogradTable() {
  static constexpr dot::WinogradKernels kTable = {
      .transform_input = &TransformInput,
      .transform_tiles = &TransformTiles,
      .transform_weights = &TransformWeights,
      .multiply = &Multiply,
      .write_sums = &WriteSums,
      .sum_deviations = &SumDeviations,
      .write_masked = &WriteMasked,
      .order_pixels = &OrderPixels,
      .transpose_grad = &TransposeGrad,
      .transform_grad = &TransformGrad,
      .multiply_grad = &MultiplyGrad,
      .fold = &Fold};
  return kTable;
}

THIMBLE_DOT_END

#endif  // per-build include guard
