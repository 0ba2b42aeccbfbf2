// SPDX-License-Identifier: Apache-2.0
//
// Direct convolutions of bf16 pairs (direct.h): a tile of the input, the
// weights of a block of outputs, and the sums. Included once per build, by way
// of foreach_build.h; hence no `#pragma once`.
#include "kernels/dot/halves-inl.h"
#include "kernels/dot/lanes-inl.h"
#include "kernels/dot/source-inl.h"

THIMBLE_DOT_BEGIN
namespace {

using dot::DirectPass;
using dot::DirectTap;

// One channel pair's rows, all planes of them. `line` holds a source row.
void LoadPair(const DirectPass& pass, const Conv2dInput& input, int64_t plane,
              int64_t pair, int64_t first_row, int64_t rows, uint32_t* line,
              uint32_t* tile) {
  const dot::Planes& planes = pass.planes;
  const int64_t pixels = planes.src_height * planes.src_width;
  const SourceRow low(input, 2 * pair);
  const SourceRow high(input, 2 * pair + 1);
  const bool whole = 2 * pair + 1 < pass.channels;
  for (int64_t a = 0; a < planes.count_h; ++a) {
    for (int64_t i = 0; i < rows + planes.halo; ++i) {
      const int64_t row = planes.step * (first_row + i) + a - planes.pad_h;
      const bool is_there = row >= 0 && row < planes.src_height;
      if (is_there) {
        const int64_t at = plane * pixels + row * planes.src_width;
        ReadPairs(planes, low, high, at, whole ? at + pixels : -1, line);
      }
      for (int64_t b = 0; b < planes.count_w; ++b) {
        uint32_t* to =
            tile + (a * planes.count_w + b) * planes.plane() + i * planes.cols;
        const uint32_t* from = LineOf(planes, b, line);
        for (int64_t j = 0; j < planes.cols; j += kLanes) {
          StoreFirstWords(is_there ? LoadWords(from + j) : ZeroWords(), to + j,
                          static_cast<size_t>(planes.cols - j));
        }
      }
    }
  }
}

// kO outputs by kV vectors of positions, which begin at[v] words from the
// tile's start. Their sums go to sums[o * stride + to[v]].
struct DirectSum {
  const DirectTap* taps;
  int64_t tap_count;
  int64_t pairs;
  int64_t pair_words;    // of the tile, from one pair to the next
  int64_t pair_weights;  // and of the weights
  int64_t output_weights;
};

template <int kO, int kV>
void SumDirectTile(const DirectSum& sum, const uint32_t* tile,
                   const uint32_t* weights, const int64_t* at,
                   const int64_t* to, float* sums, int64_t stride) {
  const DirectTap* const taps = sum.taps;
  const DirectTap* const end = taps + sum.tap_count;
  const int64_t output_weights = sum.output_weights;
  int64_t from[kV];
  Floats acc[kO][kV];
  THIMBLE_DOT_UNROLL
  for (int v = 0; v < kV; ++v) {
    from[v] = at[v];
    THIMBLE_DOT_UNROLL
    for (int o = 0; o < kO; ++o) acc[o][v] = ZeroFloats();
  }
  for (int64_t p = sum.pairs; p != 0; --p) {
    for (const DirectTap* tap = taps; tap != end; ++tap) {
      const uint32_t* in = tile + tap->offset;
      const uint32_t* w = weights + tap->weight;
      Words x[kV];
      THIMBLE_DOT_UNROLL
      for (int v = 0; v < kV; ++v) x[v] = LoadWords(in + from[v]);
      THIMBLE_DOT_UNROLL
      for (int o = 0; o < kO; ++o) {
        const Words factor = SetPair(w + o * output_weights);
        THIMBLE_DOT_UNROLL
        for (int v = 0; v < kV; ++v) acc[o][v] = Dot(acc[o][v], x[v], factor);
      }
    }
    tile += sum.pair_words;
    weights += sum.pair_weights;
  }
  THIMBLE_DOT_UNROLL
  for (int o = 0; o < kO; ++o) {
    THIMBLE_DOT_UNROLL
    for (int v = 0; v < kV; ++v) Store(acc[o][v], sums + o * stride + to[v]);
  }
}

#if THIMBLE_DOT_IS_AVX2
constexpr int kSumOutputs = 2;
constexpr int kSumVectors = 1;
#else
constexpr int kSumOutputs = dot::kTileOutputs;
constexpr int kSumVectors = dot::kTileVectors;
#endif
static_assert(dot::kTileOutputs % kSumOutputs == 0);

}  // namespace

// Rows of positions [first_row, first_row + rows) of `images` images from
// `image` on.
void LoadDirectTile(const DirectPass& pass, const Conv2dInput& input,
                    int64_t image, int64_t images, int64_t first_row,
                    int64_t rows, uint32_t* line, uint32_t* tile) {
  std::memset(line, 0,
              static_cast<size_t>(pass.line_words()) * sizeof(uint32_t));
  const int64_t words = pass.planes.count() * pass.planes.plane();
  for (int64_t i = 0; i < images; ++i) {
    for (int64_t p = 0; p < pass.pairs(); ++p) {
      LoadPair(pass, input, (image + i) * pass.channels + 2 * p, p, first_row,
               rows, line, tile + i * pass.image_words() + p * words);
    }
  }
}

// Weights of outputs [first, first + outputs), and zeros for as many as a
// register tile has more: [output][pair][tap] forward, or [pair][output][tap].
void PackDirectWeights(const DirectPass& pass, const uint16_t* weights,
                       int64_t first, int64_t outputs, uint32_t* to) {
  const int64_t taps = pass.taps();
  const int64_t all = conv::RoundUp(outputs, dot::kTileOutputs);
  const int64_t row = pass.pairs() * taps;
  if (!pass.forward) {
    const int64_t channel = pass.outputs * taps;
    for (int64_t p = 0; p < pass.pairs(); ++p) {
      const uint16_t* low = weights + 2 * p * channel + first * taps;
      const bool whole = 2 * p + 1 < pass.channels;
      for (int64_t i = 0; i < all * taps; i += kLanes) {
        const int64_t left = HWY_MAX(outputs * taps - i, int64_t{0});
        Store(ZipLines(low + i, whole ? low + channel + i : nullptr,
                       static_cast<size_t>(left)),
              to + p * all * taps + i);
      }
    }
    return;
  }
  for (int64_t o = 0; o < outputs; ++o) {
    const uint16_t* from = weights + (first + o) * pass.channels * taps;
    uint32_t* words = to + o * row;
    if (taps == 1) {  // pairs are words already
      for (int64_t p = 0; p < row; p += kLanes) {
        Store(LoadFirstPairs(from + 2 * p,
                             static_cast<size_t>(pass.channels - 2 * p)),
              words + p);
      }
      continue;
    }
    for (int64_t p = 0; p < pass.pairs(); ++p, words += taps) {
      const uint16_t* low = from + 2 * p * taps;
      const bool whole = 2 * p + 1 < pass.channels;
      for (int64_t t = 0; t < taps; t += kLanes) {
        Store(ZipLines(low + t, whole ? low + taps + t : nullptr,
                       static_cast<size_t>(taps - t)),
              words + t);
      }
    }
  }
  std::memset(to + outputs * row, 0,
              static_cast<size_t>((all - outputs) * row) * sizeof(uint32_t));
}

// The sums of one phase, as [output][vector], for `outputs` outputs (or as many
// more as a register tile has).
void SumDirect(const DirectPass& pass, const DirectTap* taps, int64_t tap_count,
               int64_t images, int64_t rows, int64_t outputs,
               const uint32_t* tile, const uint32_t* weights, float* sums) {
  const int64_t all = conv::RoundUp(outputs, dot::kTileOutputs);
  DirectSum sum;
  sum.taps = taps;
  sum.tap_count = tap_count;
  sum.pairs = pass.pairs();
  sum.pair_words = pass.planes.count() * pass.planes.plane();
  sum.pair_weights = pass.forward ? pass.taps() : all * pass.taps();
  sum.output_weights = pass.forward ? pass.pairs() * pass.taps() : pass.taps();
  const int64_t per_image = pass.image_vectors(rows);
  const int64_t vectors = images * per_image;
  const int64_t stride = vectors * kLanes;
  for (int64_t first = 0; first < vectors; first += kSumVectors) {
    int64_t at[kSumVectors], to[kSumVectors];
    for (int v = 0; v < kSumVectors; ++v) {
      // The last vectors are made twice rather than by another loop.
      const int64_t vector = HWY_MIN(first + v, vectors - 1);
      at[v] =
          vector / per_image * pass.image_words() + vector % per_image * kLanes;
      to[v] = vector * kLanes;
    }
    for (int64_t o = 0; o < all; o += kSumOutputs) {
      SumDirectTile<kSumOutputs, kSumVectors>(
          sum, tile, weights + o * sum.output_weights, at, to,
          sums + o * stride, stride);
    }
  }
}

// row[2 * i] = even[i], row[2 * i + 1] = odd[i], for i < n and up to a vector
// past.
void InterleaveRow(const float* even, const float* odd, int64_t n, float* row) {
  for (int64_t i = 0; i < n; i += kLanes) {
    Interleave(LoadFloats(even + i), LoadFloats(odd + i), row + 2 * i);
  }
}

THIMBLE_DOT_END
