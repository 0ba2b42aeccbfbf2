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
#include "kernels/dot/winograd_tiles-inl.h"

THIMBLE_DOT_BEGIN
namespace {

// Rows 1 and 2 of a strip's tiles are those of the outputs.
template <int64_t kWidth>
void TransposeRows(const dot::StripRows& rows, const dot::Planes& planes,
                   int64_t outputs, uint32_t* to) {
  const RowLoad load(rows, false);
  for (int64_t a = 0; a < 2; ++a) {
    for (int64_t o = 0; o < outputs; o += 8) {
      Words r[8];
      if (a == 0) {
        for (int64_t i = 0; i < 8; ++i) PrefetchLater(planes, o + i);
      }
      THIMBLE_DOT_UNROLL
      for (int64_t i = 0; i < 8; ++i) {
        r[i] = LoadTileRow<kWidth>(rows, load, a + 1,
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

// Factors of left and right pixels, by dot products as for tiles of x.
struct PixelFactors {
  PixelFactors()
      : left(SetWords(0x00003F80u)),
        right(SetWords(0x3F800000u)),
        sum(SetWords(0x3F803F80u)),
        difference(SetWords(0xBF803F80u)),
        minus_left(SetWords(0x0000BF80u)),
        minus_right(SetWords(0xBF800000u)),
        one(SetFloats(1.0f)) {}
  Words left, right, sum, difference, minus_left, minus_right;
  Floats one;
};

// Two times eight outputs and two tiles: the four columns of slice kSlice of
// A grad_y A'. Of the upper or the lower row alone, two columns are pixels as
// they are.
template <int64_t kSlice>
THIMBLE_DOT_INLINE void GradColumns(const uint32_t* upper,
                                    const uint32_t* lower,
                                    const PixelFactors& by, Words (&to)[4]) {
  if constexpr (kSlice == 0 || kSlice == 3) {
    const uint32_t* from = kSlice == 0 ? upper : lower;
    const Words v[2] = {LoadWords(from), LoadWords(from + kLanes)};
    const Floats zero = ZeroFloats();
    to[0] = PackEven(v[0], v[1]);
    to[1] = Round(Dot(zero, v[0], by.sum), Dot(zero, v[1], by.sum));
    to[2] =
        Round(Dot(zero, v[0], by.difference), Dot(zero, v[1], by.difference));
    to[3] = PackOdd(v[0], v[1]);
  } else {
    Floats left[2], right[2];
    THIMBLE_DOT_UNROLL
    for (int64_t h = 0; h < 2; ++h) {
      const Words u = LoadWords(upper + h * kLanes);
      const Words l = LoadWords(lower + h * kLanes);
      left[h] = Dot(Dot(ZeroFloats(), u, by.left), l,
                    kSlice == 1 ? by.left : by.minus_left);
      right[h] = Dot(Dot(ZeroFloats(), u, by.right), l,
                     kSlice == 1 ? by.right : by.minus_right);
    }
    to[0] = Round(left[0], left[1]);
    // Sums as products: additions and rounding share units of the CPU.
    to[1] = Round(FusedMulAdd(left[0], by.one, right[0]),
                  FusedMulAdd(left[1], by.one, right[1]));
    to[2] = Round(Sub(left[0], right[0]), Sub(left[1], right[1]));
    to[3] = Round(right[0], right[1]);
  }
}

template <int64_t kSlice>
void TransformGradSlice(const uint32_t* from, int64_t outputs, int64_t strips,
                        uint32_t* to) {
  const int64_t row = kLanes * outputs;  // words
  const int64_t column = strips * row / 2;
  const PixelFactors by;
  for (int64_t s = 0; s < strips; ++s, from += row) {
    for (int64_t i = 0; i < row; i += 2 * kLanes, from += 2 * kLanes) {
      Words columns[4];
      GradColumns<kSlice>(from, from + row, by, columns);
      THIMBLE_DOT_UNROLL
      for (int64_t k = 0; k < 4; ++k) Store(columns[k], to + k * column);
      to += kLanes;
    }
  }
}

void TransformGrad(const uint32_t* from, int64_t outputs, int64_t slice,
                   int64_t strips, uint32_t* to) {
  constexpr decltype(&TransformGradSlice<0>) kRun[4] = {
      &TransformGradSlice<0>, &TransformGradSlice<1>, &TransformGradSlice<2>,
      &TransformGradSlice<3>};
  kRun[slice](from, outputs, strips, to);
}

// Sums of kVectors vectors of outputs and kChannels channels of one column. A
// strip's eight pairs of tiles are one round, so that the CPU foresees the last
// one. The next column's sums are asked for: they stay in a cache that is
// further away.
template <int64_t kOutputs, int64_t kChannels, int64_t kVectors>
THIMBLE_DOT_INLINE void MultiplyTile(const uint32_t* grad,
                                     const uint32_t* tiles, int64_t strips,
                                     bool first, float* sums) {
  constexpr int64_t kStride = dot::GradSumStride(kOutputs);
  Floats acc[kChannels][kVectors];
  THIMBLE_DOT_UNROLL
  for (int64_t i = 0; i < kChannels * kVectors; ++i) {
    const float* from = sums + i / kVectors * kStride + i % kVectors * kLanes;
    acc[i / kVectors][i % kVectors] = first ? ZeroFloats() : LoadFloats(from);
    __builtin_prefetch(from + kOutputs);
  }
  for (int64_t s = 0; s < strips; ++s) {
    THIMBLE_DOT_UNROLL
    for (int64_t p = 0; p < kLanes / 2; ++p) {
      Words y[kVectors];
      THIMBLE_DOT_UNROLL
      for (int64_t v = 0; v < kVectors; ++v) {
        y[v] = LoadWords(grad + p * kOutputs + v * kLanes);
      }
      THIMBLE_DOT_UNROLL
      for (int64_t c = 0; c < kChannels; ++c) {
        const Words x = SetPair(tiles + c * kLanes + p);
        THIMBLE_DOT_UNROLL
        for (int64_t v = 0; v < kVectors; ++v) {
          acc[c][v] = Dot(acc[c][v], y[v], x);
        }
      }
    }
    grad += kLanes / 2 * kOutputs;
    tiles += dot::kGradChannels * kLanes;
  }
  THIMBLE_DOT_UNROLL
  for (int64_t i = 0; i < kChannels * kVectors; ++i) {
    Store(acc[i / kVectors][i % kVectors],
          sums + i / kVectors * kStride + i % kVectors * kLanes);
  }
}

template <int64_t kOutputs>
void MultiplyGradSlice(const uint32_t* grad, const uint32_t* tiles,
                       int64_t strips, bool first, float* sums) {
#if THIMBLE_DOT_IS_AVX2  // has half as many registers, each half as long
  constexpr int64_t kChannels = 4;
  constexpr int64_t kVectors = 1;
#else
  constexpr int64_t kChannels = dot::kGradChannels;
  constexpr int64_t kVectors = kOutputs / kLanes;
#endif
  const int64_t half = dot::kGradChannels * strips * kLanes;
  for (int64_t k = 0; k < 4; ++k) {
    const uint32_t* x = tiles + k / 2 * half + k % 2 * (kLanes / 2);
    for (int64_t c = 0; c < dot::kGradChannels; c += kChannels) {
      float* to = sums + c * dot::GradSumStride(kOutputs) + k * kOutputs;
      for (int64_t o = 0; o < kOutputs; o += kVectors * kLanes) {
        MultiplyTile<kOutputs, kChannels, kVectors>(grad + o, x + c * kLanes,
                                                    strips, first, to + o);
      }
    }
    grad += strips * (kLanes / 2) * kOutputs;
  }
}

void MultiplyGrad(const uint32_t* grad, const uint32_t* tiles, int64_t outputs,
                  int64_t strips, bool first, float* sums) {
  const auto run =
      outputs == 16 ? &MultiplyGradSlice<16> : &MultiplyGradSlice<32>;
  run(grad, tiles, strips, first, sums);
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
    // The second channel's place reaches into its own sums. That of the first
    // one is its sums' for the same outputs; others lie before their sums.
    float* to = c == 1 ? line : sums + c * 9 * outputs;
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
          Store(taps[kh], to + (3 * kh + kw) * outputs + o);
        }
      }
    }
    if (c == 1) {
      std::memcpy(sums + 9 * outputs, line,
                  static_cast<size_t>(9 * outputs) * sizeof(float));
    }
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
