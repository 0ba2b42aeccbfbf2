// SPDX-License-Identifier: Apache-2.0
//
// Sparse convolutions of bf16 pairs (sparse.h): tiles, and sums of one output.
// Included once per build, by way of foreach_build.h; hence no `#pragma once`.
#include "kernels/dot/sparse_lanes-inl.h"
#include "kernels/dot/sparse_pairs-inl.h"
#include "kernels/dot/sparse_tile-inl.h"
#include "kernels/dot/sparse_transpose-inl.h"

THIMBLE_DOT_BEGIN
namespace {

using dot::SparseSum;

template <int kV>
struct ZippedSums {
  Floats low[kV];
  Floats high[kV];
};

template <int kV>
THIMBLE_DOT_INLINE void SetZero(ZippedSums<kV>& sums) {
  THIMBLE_DOT_UNROLL
  for (int v = 0; v < kV; ++v) sums.low[v] = sums.high[v] = ZeroFloats();
}

// Adds pairs [pair, end) of records.
template <int kV>
THIMBLE_DOT_INLINE void AddPairs(const uint32_t* pair, const uint32_t* end,
                                 const std::byte* tile, ZippedSums<kV>& sums) {
  for (; pair != end; pair += 2) {
    uint64_t both;
    std::memcpy(&both, pair, sizeof both);
    // Loaded once: parts of it would be loads of their own.
    asm("" : "+r"(both));
    const std::byte* a = tile + dot::kOffsetUnit * static_cast<uint16_t>(both);
    const std::byte* b =
        tile + dot::kOffsetUnit * static_cast<uint16_t>(both >> 16);
    const Words w = SetWords(static_cast<uint32_t>(both >> 32));
    THIMBLE_DOT_UNROLL
    for (int v = 0; v < kV; ++v) {
      const Words x = LoadOnce(a + v * dot::kLineBytes);
      const Words y = LoadOnce(b + v * dot::kLineBytes);
      sums.low[v] = Dot(sums.low[v], ZipLow(x, y), w);
      sums.high[v] = Dot(sums.high[v], ZipHigh(x, y), w);
    }
  }
}

template <int kV>
THIMBLE_DOT_INLINE void AddTo(const ZippedSums<kV>& more,
                              ZippedSums<kV>& sums) {
  THIMBLE_DOT_UNROLL
  for (int v = 0; v < kV; ++v) {
    sums.low[v] = Add(sums.low[v], more.low[v]);
    sums.high[v] = Add(sums.high[v], more.high[v]);
  }
}

// Rows [first, first + kV) of sums, where they belong, in the order of
// positions: [segment][row][column].
template <int kV>
THIMBLE_DOT_INLINE void StoreSumRows(const SparsePass& pass,
                                     const ZippedSums<kV>& sums, int64_t first,
                                     int64_t height, float* to) {
  const int64_t cols = pass.cols, segment = height * cols;
  THIMBLE_DOT_UNROLL
  for (int v = 0; v < kV; ++v) {
    Floats low, high;
    InOrder(sums.low[v], sums.high[v], low, high);
    float* row = to + (first + v) * cols;
    if (cols == 8) {
      StoreHalves(WordsOf(low), row, row + segment);
      StoreHalves(WordsOf(high), row + 2 * segment, row + 3 * segment);
    } else {
      Store(low, row);
      Store(high, row + (cols == 16 ? segment : kLanes));
    }
  }
}

// The same in bf16.
template <int kV>
THIMBLE_DOT_INLINE void StoreHalfRows(const SparsePass& pass,
                                      const ZippedSums<kV>& sums, int64_t first,
                                      const SparseSum& sum) {
  const int64_t cols = pass.cols;
  THIMBLE_DOT_UNROLL
  for (int v = 0; v < kV; ++v) {
    const Words halves = RoundInOrder(sums.low[v], sums.high[v]);
    const int64_t at = (first + v) * cols;
    if (cols == 8) {
      StoreQuarters(halves, sum.to[0] + at, sum.to[1] + at, sum.to[2] + at,
                    sum.to[3] + at);
    } else if (cols == 16) {
      StoreHalves(halves, sum.to[0] + at, sum.to[1] + at);
    } else {
      Store(halves, sum.to[0] + at);
    }
  }
}

// Rows [first, first + kV) of one output and phase.
template <int kV>
THIMBLE_DOT_INLINE void SumRows(const SparsePass& pass, const Mover& mover,
                                const SparseSum& sum, int64_t first) {
  const int64_t line = first * dot::kLineBytes;
  const uint32_t* at[dot::kSlots + 1];
  for (int64_t s = 0; s <= dot::kSlots; ++s) {
    at[s] = sum.pairs + 2 * int64_t{sum.starts[s]};
  }
  float* kept = sum.chunk_sums + first * dot::kLinePixels;
  ZippedSums<kV> sums, before;
  SetZero(sums);
  AddPairs(at[0], at[1], sum.slots[0] + line, sums);
  THIMBLE_DOT_UNROLL
  for (int v = 0; v < kV; ++v) {
    mover.FromBefore(sums.low[v], sums.high[v]);
    if (!sum.first) {
      const float* row = kept + v * dot::kLinePixels;
      sums.low[v] = Add(sums.low[v], LoadFloats(row));
      sums.high[v] = Add(sums.high[v], LoadFloats(row + kLanes));
    }
    before.low[v] = sums.low[v];
    before.high[v] = sums.high[v];
  }
  SetZero(sums);
  AddPairs(at[1], at[2], sum.slots[1] + line, sums);
  if (pass.behind_moves) {
    THIMBLE_DOT_UNROLL
    for (int v = 0; v < kV; ++v) {
      mover.FromBehind(sums.low[v], sums.high[v]);
    }
  }
  AddTo(before, sums);
  AddPairs(at[2], at[3], sum.slots[2] + line, sums);
  if (!sum.last) {
    THIMBLE_DOT_UNROLL
    for (int v = 0; v < kV; ++v) {
      Store(sums.low[v], kept + v * dot::kLinePixels);
      Store(sums.high[v], kept + v * dot::kLinePixels + kLanes);
    }
  } else if (sum.sums != nullptr) {
    StoreSumRows(pass, sums, first, sum.height, sum.sums);
  } else {
    StoreHalfRows(pass, sums, first, sum);
  }
}

}  // namespace

// One phase of some outputs of a tile.
void SumSparse(const SparsePass& pass, SparseSum sum) {
  const Mover mover(pass.cols);
  for (int64_t o = 0; o < sum.outputs; ++o) {
#if THIMBLE_DOT_IS_AVX2
    for (int64_t v = 0; v < sum.height; ++v) {
      SumRows<1>(pass, mover, sum, v);
    }
#else
    if (sum.height == 8) {
      SumRows<8>(pass, mover, sum, 0);
    } else {
      SumRows<4>(pass, mover, sum, 0);
    }
#endif
    sum.starts += sum.next_starts;
    sum.chunk_sums += pass.output_sums();
    if (sum.sums != nullptr) sum.sums += pass.output_sums();
    for (int64_t g = 0; g < pass.segments(); ++g) sum.to[g] += sum.next_to[g];
  }
}

// Row r of one segment of positions, from its four phases, becomes two rows of
// `to`. A phase's sums are `phase` floats behind those of the one before.
void JoinSparsePhases(const SparsePass& pass, int64_t height, const float* sums,
                      int64_t phase, float* to) {
  const int64_t cols = pass.cols;
  for (int64_t r = 0; r < 2 * height; ++r) {
    const float* even = sums + r % 2 * 2 * phase + r / 2 * cols;
    if (cols == 8) {
      Store(InterleavedHalves(FloatsOf(LoadHalves(even, even + phase))),
            to + r * 2 * cols);
      continue;
    }
    for (int64_t j = 0; j < cols; j += kLanes) {
      float* row = to + r * 2 * cols + 2 * j;
      StoreInterleaved(LoadFloats(even + j), LoadFloats(even + phase + j), row,
                       row + kLanes);
    }
  }
}

THIMBLE_DOT_END
