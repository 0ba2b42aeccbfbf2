// SPDX-License-Identifier: Apache-2.0
//
// Sums of direct convolutions of bf16 pairs (direct.h). Included once per
// build, by way of foreach_build.h; hence no `#pragma once`.
#include "kernels/dot/direct_load-inl.h"
#include "kernels/dot/halves-inl.h"
#include "kernels/dot/lanes-inl.h"

THIMBLE_DOT_BEGIN
namespace {

using dot::DirectPass;
using dot::DirectTap;
using dot::DirectTarget;

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

// kO outputs, whose weights begin there, by kV vectors at `at`.
template <int kO, int kV>
THIMBLE_DOT_INLINE void SumDirectTaps(const DirectSum& sum,
                                      const uint32_t* tile,
                                      const uint32_t* weights,
                                      const int64_t (&at)[kV],
                                      Floats (&acc)[kO][kV]) {
  const DirectTap* const taps = sum.taps;
  const DirectTap* const end = taps + sum.tap_count;
  const int64_t output_weights = sum.output_weights;
  int64_t from[kV];
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
}

// kO outputs from `output` on by kV vectors.
template <int kO, int kV>
void SumDirectTile(const DirectSum& sum, const uint32_t* tile,
                   const uint32_t* weights, const DirectVectors<kV>& vectors,
                   const DirectTarget& target, int64_t output,
                   int64_t outputs) {
  Floats acc[kO][kV];
  SumDirectTaps(sum, tile, weights + output * sum.output_weights, vectors.at,
                acc);
  StoreDirectTile(acc, vectors, target, output, outputs - output);
}

// Words of two phases at a vector's positions: a row of the tensor, or two of
// 16 elements `apart`.
template <int kV>
THIMBLE_DOT_INLINE void StoreJoined(Words both,
                                    const DirectVectors<kV>& vectors, int v,
                                    int64_t apart, uint16_t* to) {
  to += vectors.to[v];
  if (apart == 0) {
    Store(both, to);
  } else if (vectors.left[v] > kLanes / 2) {
    StoreHalves(both, to, to + apart);
  } else {
    StoreFirstPairs(both, to, kLanes);
  }
}

// SumDirectTile of two phases, whose results take turns in rows of the tensor.
template <int kO, int kV>
void SumJoinedTile(const DirectSum (&sums)[2], const uint32_t* tile,
                   const uint32_t* weights, const DirectVectors<kV>& vectors,
                   int64_t apart, const DirectTarget& target, int64_t output,
                   int64_t outputs) {
  weights += output * sums[0].output_weights;
  uint16_t* to = target.to + output * target.output;
  Floats acc[kO][kV];
  SumDirectTaps(sums[0], tile, weights, vectors.at, acc);
#if THIMBLE_DOT_IS_AVX2
  static_assert(kV == 1);
  Floats odd[kO][kV];
  SumDirectTaps(sums[1], tile, weights, vectors.at, odd);
  THIMBLE_DOT_UNROLL
  for (int o = 0; o < kO; ++o, to += target.output) {
    if (output + o >= outputs) return;
    StoreJoined(Zip(acc[o][0], odd[o][0]), vectors, 0, apart, to);
  }
#else
  // Rounded, those of the first phase leave room for as many of the second.
  Words even[kO][kV / 2];
  THIMBLE_DOT_UNROLL
  for (int i = 0; i < kO * kV; i += 2) {
    even[i / kV][i % kV / 2] =
        Round(acc[i / kV][i % kV], acc[i / kV][i % kV + 1]);
  }
  SumDirectTaps(sums[1], tile, weights, vectors.at, acc);
  THIMBLE_DOT_UNROLL
  for (int o = 0; o < kO; ++o, to += target.output) {
    if (output + o >= outputs) return;
    THIMBLE_DOT_UNROLL
    for (int v = 0; v < kV; v += 2) {
      const ZippedWords both =
          ZipWords(even[o][v / 2], Round(acc[o][v], acc[o][v + 1]));
      StoreJoined(both.first, vectors, v, apart, to);
      StoreJoined(both.second, vectors, v + 1, apart, to);
    }
  }
#endif
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

DirectSum SumOf(const DirectPass& pass, const DirectTap* taps,
                int64_t tap_count, int64_t all) {
  DirectSum sum;
  sum.taps = taps;
  sum.tap_count = tap_count;
  sum.pairs = pass.pairs();
  sum.pair_words = pass.pair_words();
  sum.pair_weights = pass.forward ? pass.taps() : all * pass.taps();
  sum.output_weights = pass.forward ? pass.pairs() * pass.taps() : pass.taps();
  return sum;
}

}  // namespace

// One phase of `outputs` outputs. Where only sums are wanted, there may be as
// many more of them as a register tile has.
void SumDirect(const DirectPass& pass, const DirectTap* taps, int64_t tap_count,
               int64_t images, int64_t rows, int64_t outputs,
               const uint32_t* tile, const uint32_t* weights,
               const DirectTarget& target) {
  const int64_t all = conv::RoundUp(outputs, dot::kTileOutputs);
  const DirectSum sum = SumOf(pass, taps, tap_count, all);
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

// Two phases of `outputs` outputs to every other row of the tensor, in which
// they take turns. `taps` are those of the first one, then of the second.
// REQUIRES: pass.JoinsPhases().
void SumJoined(const DirectPass& pass, const DirectTap* taps,
               const int64_t (&tap_counts)[2], int64_t images, int64_t rows,
               int64_t outputs, const uint32_t* tile, const uint32_t* weights,
               const DirectTarget& target) {
  const int64_t all = conv::RoundUp(outputs, dot::kTileOutputs);
  const DirectSum sums[2] = {
      SumOf(pass, taps, tap_counts[0], all),
      SumOf(pass, taps + tap_counts[0], tap_counts[1], all)};
  const int64_t cols = pass.planes.cols;
  const int64_t positions = rows * cols;
  const int64_t vectors = images * pass.image_vectors(rows);
  const int64_t apart = cols < kLanes ? 2 * pass.out_width : 0;
  int64_t image = 0, position = 0;
  for (int64_t first = 0; first < vectors; first += kSumVectors) {
    DirectVectors<kSumVectors> at;
    at.whole = true;
    for (int v = 0; v < kSumVectors; ++v) {
      at.at[v] = image * pass.image_words() + position;
      at.to[v] = image * target.image + position / cols * 2 * pass.out_width +
                 position % cols * 2;
      at.left[v] = positions - position;
      if (first + v + 1 >= vectors) continue;
      position += kLanes;
      if (position < positions) continue;
      position = 0;
      ++image;
    }
    for (int64_t o = 0; o < all; o += kSumOutputs) {
      SumJoinedTile<kSumOutputs, kSumVectors>(sums, tile, weights, at, apart,
                                              target, o, outputs);
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
