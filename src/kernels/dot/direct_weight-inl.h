// SPDX-License-Identifier: Apache-2.0
//
// The gradient of a convolution's weights from bf16 pairs (direct_weight.h).
// Included once per build, by way of foreach_build.h; hence no `#pragma once`.
#include "kernels/dot/halves-inl.h"
#include "kernels/dot/lanes-inl.h"
#include "kernels/dot/source-inl.h"
#include "kernels/dot/strided_rows-inl.h"

THIMBLE_DOT_BEGIN
namespace {

using dot::DirectWeightPass;
using dot::WeightAhead;

// After so many terms, more is asked for.
constexpr int64_t kFetchTerms = 32;

// The list's positions of one channel, `rows` and what taps reach behind them.
THIMBLE_DOT_INLINE void LoadChannel(const DirectWeightPass& pass,
                                    const SourceRow& source,
                                    const dot::PieceList& list, int64_t at,
                                    int64_t rows, uint16_t* tile) {
  const dot::Planes& planes = pass.planes;
  const uint16_t* from =
      source.data + at * planes.src_height * planes.src_width;
  for (int64_t plane = list.first; plane < list.first + list.count; ++plane) {
    const int64_t a = plane >= planes.count_w ? 1 : 0;
    const int64_t count =
        HWY_MIN((rows + planes.halo_of(a)) * planes.cols - list.begin,
                list.vectors * kLanes);
    if (count <= 0) continue;
    uint16_t* to =
        tile + pass.plane_at(a, plane - a * planes.count_w) + list.begin;
    if (planes.step == 1) {
      LoadSingles<1>(list, plane, source, from, count, to);
    } else {
      LoadSingles<2>(list, plane, source, from, count, to);
    }
    to[count] = 0;
  }
}

// The same of all planes, where they are made of whole rows.
THIMBLE_DOT_INLINE void LoadStridedChannel(const DirectWeightPass& pass,
                                           const StridedRows& strided,
                                           const SourceRow& source, int64_t at,
                                           int64_t first_row, int64_t rows,
                                           uint16_t* to) {
  const dot::Planes& planes = pass.planes;
  const uint16_t* from =
      source.data + at * planes.src_height * planes.src_width;
  for (int64_t a = 0; a < planes.count_h; ++a) {
    const int64_t all = rows + planes.halo_of(a);
    strided.LoadSingles(a, first_row, all, source, from, pass.plane(a),
                        to + pass.plane_at(a, 0));
    for (int64_t b = 0; b < planes.count_w; ++b) {
      to[pass.plane_at(a, b) + all * planes.cols] = 0;
    }
  }
}

// What register tiles read: words of x, and of grad_y as [pair][block].
struct WeightSpan {
  const uint16_t* x;
  int64_t x_image;
  const uint32_t* grad;
  int64_t grad_image;
  int64_t block;
  int64_t images;
  int64_t pairs;
};

// Adds to the sums of kT taps, whose words begin at offsets[t], and kV vectors
// of outputs.
template <int kT, int kV>
void AddTaps(const WeightSpan& span, const int32_t* offsets, float* sums,
             WeightAhead& ahead) {
  const int64_t block = span.block;
  Floats acc[kT][kV];
  THIMBLE_DOT_UNROLL
  for (int i = 0; i < kT * kV; ++i) acc[i / kV][i % kV] = ZeroFloats();
  for (int64_t image = 0; image < span.images; ++image) {
    const uint16_t* x[kT];
    THIMBLE_DOT_UNROLL
    for (int t = 0; t < kT; ++t) {
      x[t] = span.x + image * span.x_image + offsets[t];
    }
    const uint32_t* grad = span.grad + image * span.grad_image;
    for (int64_t k = 0; k < 2 * span.pairs;) {
      ahead.Fetch();
      const int64_t end = HWY_MIN(2 * span.pairs, k + kFetchTerms);
      for (; k < end; k += 2) {
        Words g[kV];
        THIMBLE_DOT_UNROLL
        for (int v = 0; v < kV; ++v) g[v] = LoadWords(grad + v * kLanes);
        THIMBLE_DOT_UNROLL
        for (int t = 0; t < kT; ++t) {
          const Words factor = SetPair(x[t] + k);
          THIMBLE_DOT_UNROLL
          for (int v = 0; v < kV; ++v) acc[t][v] = Dot(acc[t][v], g[v], factor);
        }
        grad += block;
      }
    }
  }
  THIMBLE_DOT_UNROLL
  for (int i = 0; i < kT * kV; ++i) {
    float* to = sums + i / kV * block + i % kV * kLanes;
    Store(Add(LoadFloats(to), acc[i / kV][i % kV]), to);
  }
}

// With two vectors of outputs 24 sums and three other registers of 32.
#if THIMBLE_DOT_IS_AVX2
constexpr int kTileTaps = 3;
constexpr int kTapVectors = 1;
#else
constexpr int kTileTaps = dot::kSumTaps;
constexpr int kTapVectors = 2;
#endif
static_assert(dot::kSumTaps % kTileTaps == 0);

// Adds n sums, at most 16, to what is there if that is wanted, and stores them.
THIMBLE_DOT_INLINE void StoreSums(const Conv2dGradWeightTarget& target,
                                  int64_t at, size_t n, Floats sums) {
  if (target.to.dtype() == DType::kF32) {
    float* to = target.to.f32() + at;
    if (target.accumulate) sums = Add(LoadFirstFloats(to, n), sums);
    StoreFirstFloats(sums, to, n);
    return;
  }
  auto* to = target.to.halves(DType::kBF16) + at;
  if (target.accumulate) sums = Add(LoadFirstHalves(to, n), sums);
  StoreFirstHalves(sums, to, n);
}

}  // namespace

// Rows [first_row, first_row + rows) of channels [first, first + channels) of
// an image. Behind each plane is a zero.
void LoadWeightTile(const DirectWeightPass& pass, const Conv2dInput& input,
                    int64_t image, int64_t first, int64_t channels,
                    int64_t first_row, int64_t rows, uint16_t* tile) {
  const int64_t at = image * pass.shape.in_channels + first;
  if (StridedRows::Takes(pass.planes)) {
    const StridedRows strided(pass.planes);
    for (int64_t c = 0; c < channels; ++c) {
      LoadStridedChannel(pass, strided, SourceRow(input, first + c), at + c,
                         first_row, rows, tile + c * pass.channel_halves());
    }
    return;
  }
  dot::ForPieceLists(
      pass.planes, first_row, rows, [&](const dot::PieceList& list) {
        for (int64_t c = 0; c < channels; ++c) {
          LoadChannel(pass, SourceRow(input, first + c), list, at + c, rows,
                      tile + c * pass.channel_halves());
        }
      });
}

// grad_y of the same rows, of outputs from `output` on.
void LoadWeightGrad(const DirectWeightPass& pass, const uint16_t* grad_y,
                    int64_t image, int64_t output, int64_t outputs,
                    int64_t first_row, int64_t rows, uint32_t* grad) {
  const int64_t cols = pass.planes.cols;
  const int64_t pixels = pass.planes.rows * cols;
  const int64_t plane = image * pass.shape.out_channels + output;
  PackColumns(grad_y + plane * pixels + first_row * cols,
              static_cast<size_t>(outputs), static_cast<size_t>(pixels),
              static_cast<size_t>(rows * cols), static_cast<size_t>(pass.block),
              grad);
}

// Adds what `images` images in scratch give to `count` sums, [tap][block].
void AddWeightTile(const DirectWeightPass& pass, int64_t images, int64_t rows,
                   int64_t count, const int32_t* offsets, const uint16_t* x,
                   const uint32_t* grad, float* sums, WeightAhead& ahead) {
  WeightSpan span;
  span.x = x;
  span.x_image = pass.image_halves();
  span.pairs = pass.position_pairs(rows);
  span.grad_image = span.pairs * pass.block;
  span.block = pass.block;
  span.images = images;
  for (int64_t o = 0; o < pass.block; o += kTapVectors * kLanes) {
    span.grad = grad + o;
    const bool whole = o + kTapVectors * kLanes <= pass.block;
    for (int64_t i = 0; i < count; i += kTileTaps) {
      float* to = sums + i * pass.block + o;
      if (whole) {
        AddTaps<kTileTaps, kTapVectors>(span, offsets + i, to, ahead);
      } else {
        AddTaps<kTileTaps, 1>(span, offsets + i, to, ahead);
      }
    }
  }
}

// Sums [tap][block] of `count` taps to rows of the gradient, of which `outputs`
// begin at element `at` and lie `stride` apart.
void StoreWeightSums(const Conv2dGradWeightTarget& target, const float* sums,
                     int64_t block, int64_t outputs, int64_t count, int64_t at,
                     int64_t stride) {
  for (int64_t o = 0; o < outputs; o += kLanes) {
    for (int64_t i = 0; i < count; i += kLanes) {
      Words square[16];
      THIMBLE_DOT_UNROLL
      for (int r = 0; r < 16; ++r) {
        square[r] =
            i + r < count ? LoadWords(sums + (i + r) * block + o) : ZeroWords();
      }
      Transpose16(square);
      for (int r = 0; r < 16 && o + r < outputs; ++r) {
        StoreSums(target, at + (o + r) * stride + i,
                  static_cast<size_t>(count - i), FloatsOf(square[r]));
      }
    }
  }
}

THIMBLE_DOT_END
