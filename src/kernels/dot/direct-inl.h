// SPDX-License-Identifier: Apache-2.0
//
// Direct convolutions of bf16 pairs (direct.h): a tile of the input, the
// weights of a block of outputs, and the sums. Included once per build, by way
// of foreach_build.h; hence no `#pragma once`.
#include "kernels/dot/halves-inl.h"
#include "kernels/dot/lanes-inl.h"
#include "kernels/dot/source-inl.h"
#include "kernels/dot/strided_rows-inl.h"

THIMBLE_DOT_BEGIN
namespace {

using dot::DirectPass;
using dot::DirectTap;
using dot::DirectTarget;

// The list's positions of one pair, `rows` and what taps reach behind them.
THIMBLE_DOT_INLINE void LoadPair(const DirectPass& pass,
                                 const Conv2dInput& input,
                                 const dot::PieceList& list, int64_t image,
                                 int64_t pair, int64_t rows, uint32_t* to) {
  const dot::Planes& planes = pass.planes;
  const int64_t pixels = planes.src_height * planes.src_width;
  const SourceRow low(input, 2 * pair);
  const bool whole = 2 * pair + 1 < pass.channels;
  const SourceRow high(input, 2 * pair + (whole ? 1 : 0));
  const uint16_t* low_at =
      low.data + (image * pass.channels + 2 * pair) * pixels;
  const uint16_t* high_at = whole ? low_at + pixels : nullptr;
  for (int64_t plane = list.first; plane < list.first + list.count; ++plane) {
    const int64_t a = plane >= planes.count_w ? 1 : 0;
    const int64_t count =
        HWY_MIN((rows + planes.halo_of(a)) * planes.cols - list.begin,
                list.vectors * kLanes);
    uint32_t* plane_to =
        to + planes.plane_at(a, plane - a * planes.count_w) + list.begin;
    if (planes.step == 1) {
      LoadPairs<1>(list, plane, low, low_at, high, high_at, count, plane_to);
    } else {
      LoadPairs<2>(list, plane, low, low_at, high, high_at, count, plane_to);
    }
  }
}

// The same of all planes, where they are made of whole rows.
THIMBLE_DOT_INLINE void LoadStridedPair(const DirectPass& pass,
                                        const StridedRows& source,
                                        const Conv2dInput& input, int64_t image,
                                        int64_t pair, int64_t first_row,
                                        int64_t rows, uint32_t* to) {
  const dot::Planes& planes = pass.planes;
  const int64_t pixels = planes.src_height * planes.src_width;
  const bool whole = 2 * pair + 1 < pass.channels;
  const SourceRow low(input, 2 * pair);
  const SourceRow high(input, 2 * pair + (whole ? 1 : 0));
  const uint16_t* low_at =
      low.data + (image * pass.channels + 2 * pair) * pixels;
  for (int64_t a = 0; a < planes.count_h; ++a) {
    source.LoadPairs(a, first_row, rows + planes.halo_of(a), low, low_at, high,
                     whole ? low_at + pixels : nullptr, planes.plane(a),
                     to + planes.plane_at(a, 0));
  }
}

struct DirectSum {
  const DirectTap* taps;
  int64_t tap_count;
  int64_t pairs;
  int64_t pair_words;    // of the tile, from one pair to the next
  int64_t pair_weights;  // and of the weights
  int64_t output_weights;
};

// Vectors of positions: where they begin in the tile, where their results go,
// from output 0 on, and how many of their positions there are.
template <int kV>
struct DirectVectors {
  int64_t at[kV];
  int64_t to[kV];
  int64_t left[kV];
  bool whole;  // all lanes are there, and results are neighbours
};

// The results of kO outputs, of which `outputs` are there.
template <int kO, int kV>
THIMBLE_DOT_INLINE void StoreDirectTile(const Floats (&acc)[kO][kV],
                                        const DirectVectors<kV>& vectors,
                                        const DirectTarget& target,
                                        int64_t output, int64_t outputs) {
  if (target.sums != nullptr) {
    float* sums = target.sums + output * target.output;
    THIMBLE_DOT_UNROLL
    for (int i = 0; i < kO * kV; ++i) {
      Store(acc[i / kV][i % kV],
            sums + i / kV * target.output + vectors.to[i % kV]);
    }
    return;
  }
  uint16_t* to = target.to + output * target.output;
  if constexpr (kV % 2 == 0) {
    if (vectors.whole) {
      to += vectors.to[0];
      THIMBLE_DOT_UNROLL
      for (int o = 0; o < kO; ++o, to += target.output) {
        if (o >= outputs) return;
        THIMBLE_DOT_UNROLL
        for (int v = 0; v < kV; v += 2) {
          Store(Round(acc[o][v], acc[o][v + 1]), to + v * kLanes);
        }
      }
      return;
    }
  }
  THIMBLE_DOT_UNROLL
  for (int i = 0; i < kO * kV; ++i) {
    if (i / kV >= outputs) return;
    StoreFirstHalves(acc[i / kV][i % kV],
                     to + i / kV * target.output + vectors.to[i % kV],
                     static_cast<size_t>(vectors.left[i % kV]));
  }
}

// kO outputs from `output` on by kV vectors.
template <int kO, int kV>
void SumDirectTile(const DirectSum& sum, const uint32_t* tile,
                   const uint32_t* weights, const DirectVectors<kV>& vectors,
                   const DirectTarget& target, int64_t output,
                   int64_t outputs) {
  const DirectTap* const taps = sum.taps;
  const DirectTap* const end = taps + sum.tap_count;
  const int64_t output_weights = sum.output_weights;
  weights += output * output_weights;
  int64_t from[kV];
  Floats acc[kO][kV];
  THIMBLE_DOT_UNROLL
  for (int v = 0; v < kV; ++v) {
    from[v] = vectors.at[v];
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
  StoreDirectTile(acc, vectors, target, output, outputs - output);
}

// Sixteen sums, four vectors and a broadcast.
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
                    int64_t rows, uint32_t* tile) {
  const int64_t words = pass.pair_words();
  if (StridedRows::Takes(pass.planes)) {
    const StridedRows source(pass.planes);
    for (int64_t i = 0; i < images; ++i) {
      for (int64_t p = 0; p < pass.pairs(); ++p) {
        LoadStridedPair(pass, source, input, image + i, p, first_row, rows,
                        tile + i * pass.image_words() + p * words);
      }
    }
    return;
  }
  dot::ForPieceLists(pass.planes, first_row, rows,
                     [&](const dot::PieceList& list) {
                       for (int64_t i = 0; i < images; ++i) {
                         for (int64_t p = 0; p < pass.pairs(); ++p) {
                           LoadPair(pass, input, list, image + i, p, rows,
                                    tile + i * pass.image_words() + p * words);
                         }
                       }
                     });
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
      int64_t i = 0;
      for (; whole && i + 2 * kLanes <= outputs * taps; i += 2 * kLanes) {
        ZipWholeLines(low + i, low + channel + i, to + p * all * taps + i);
      }
      for (; i < all * taps; i += kLanes) {
        const int64_t left = HWY_MAX(outputs * taps - i, int64_t{0});
        Store(ZipLines(low + i, whole ? low + channel + i : nullptr,
                       static_cast<size_t>(left)),
              to + p * all * taps + i);
      }
    }
    return;
  }
  const PairOrder joined(static_cast<size_t>(taps));
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
#if !THIMBLE_DOT_IS_AVX2
    if (taps == NineTerms::kTerms) {
      JoinNineTerms(from, pass.channels * taps, row, words);
      continue;
    }
#endif
    if (taps <= kLanes) {
      for (int64_t p = 0; p < pass.pairs(); ++p, words += taps) {
        const int64_t left = (pass.channels - 2 * p) * taps;
        Store(LoadJoined(joined, from + 2 * p * taps,
                         static_cast<size_t>(HWY_MIN(left, 2 * taps))),
              words);
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

// One phase of `outputs` outputs. Where only sums are wanted, there may be as
// many more of them as a register tile has.
void SumDirect(const DirectPass& pass, const DirectTap* taps, int64_t tap_count,
               int64_t images, int64_t rows, int64_t outputs,
               const uint32_t* tile, const uint32_t* weights,
               const DirectTarget& target) {
  const int64_t all = conv::RoundUp(outputs, dot::kTileOutputs);
  DirectSum sum;
  sum.taps = taps;
  sum.tap_count = tap_count;
  sum.pairs = pass.pairs();
  sum.pair_words = pass.pair_words();
  sum.pair_weights = pass.forward ? pass.taps() : all * pass.taps();
  sum.output_weights = pass.forward ? pass.pairs() * pass.taps() : pass.taps();
  const int64_t positions = rows * pass.planes.cols;
  const int64_t vectors = images * pass.image_vectors(rows);
  int64_t image = 0, position = 0;
  for (int64_t first = 0; first < vectors; first += kSumVectors) {
    DirectVectors<kSumVectors> at;
    at.whole = position + kSumVectors * kLanes <= positions;
    for (int v = 0; v < kSumVectors; ++v) {
      // The last vector is made several times rather than by another loop.
      at.at[v] = image * pass.image_words() + position;
      at.to[v] = image * target.image + position;
      at.left[v] = positions - position;
      if (first + v + 1 >= vectors) continue;
      position += kLanes;
      if (position < positions) continue;
      position = 0;
      ++image;
    }
    for (int64_t o = 0; o < all; o += kSumOutputs) {
      SumDirectTile<kSumOutputs, kSumVectors>(sum, tile, weights, at, target, o,
                                              outputs);
    }
  }
}

// Every other one of `rows` rows of one output, from positions of both parities
// of columns; what is null is zeros.
void StoreJoinedRows(const DirectPass& pass, const float* even,
                     const float* odd, int64_t rows, uint16_t* to) {
  const int64_t cols = pass.planes.cols;
  for (int64_t r = 0; r < rows; r += 2, to += 2 * pass.out_width) {
    const int64_t first = r / 2 * cols;
    for (int64_t j = 0; j < cols; j += kLanes) {
      const Floats low =
          even == nullptr ? ZeroFloats() : LoadFloats(even + first + j);
      const Floats high =
          odd == nullptr ? ZeroFloats() : LoadFloats(odd + first + j);
      StoreFirstPairs(Zip(low, high), to + 2 * j,
                      static_cast<size_t>(pass.out_width - 2 * j));
    }
  }
}

// row[2 * i] = even[i], row[2 * i + 1] = odd[i], for i < n and up to a vector
// past.
void InterleaveRow(const float* even, const float* odd, int64_t n, float* row) {
  for (int64_t i = 0; i < n; i += kLanes) {
    StoreInterleaved(LoadFloats(even + i), LoadFloats(odd + i), row + 2 * i,
                     row + 2 * i + kLanes);
  }
}

THIMBLE_DOT_END
