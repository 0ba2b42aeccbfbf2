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

// Adds a pair of records.
template <int kV>
THIMBLE_DOT_INLINE void AddPair(const uint32_t* pair, const std::byte* tile,
                                ZippedSums<kV>& sums) {
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

// Adds pairs of slot `s` of kN outputs. Two take turns: one of few rows would
// wait for its own sums.
template <int kV, int kN>
THIMBLE_DOT_INLINE void AddSlot(
    const uint32_t* const (&at)[kN][dot::kSlots + 1], int64_t s,
    const std::byte* tile, ZippedSums<kV> (&sums)[kN]) {
  int64_t both = 0;
  if constexpr (kN == 2) {
    const int64_t end =
        HWY_MIN(at[0][s + 1] - at[0][s], at[1][s + 1] - at[1][s]);
    for (; both < end; both += 2) {
      AddPair(at[0][s] + both, tile, sums[0]);
      AddPair(at[1][s] + both, tile, sums[1]);
    }
  }
  THIMBLE_DOT_UNROLL
  for (int n = 0; n < kN; ++n) {
    for (const uint32_t* pair = at[n][s] + both; pair != at[n][s + 1];
         pair += 2) {
      AddPair(pair, tile, sums[n]);
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

// The same in bf16, of output `n` from the first one on.
template <int kV>
THIMBLE_DOT_INLINE void StoreHalfRows(const SparsePass& pass,
                                      const ZippedSums<kV>& sums, int64_t first,
                                      const SparseSum& sum, int64_t n) {
  const int64_t cols = pass.cols;
  const auto to = [&](int64_t g) { return sum.to[g] + n * sum.next_to[g]; };
  THIMBLE_DOT_UNROLL
  for (int v = 0; v < kV; ++v) {
    const Words halves = RoundInOrder(sums.low[v], sums.high[v]);
    const int64_t at = (first + v) * cols;
    if (cols == 8) {
      StoreQuarters(halves, to(0) + at, to(1) + at, to(2) + at, to(3) + at);
    } else if (cols == 16) {
      StoreHalves(halves, to(0) + at, to(1) + at);
    } else {
      Store(halves, to(0) + at);
    }
  }
}

// Rows [first, first + kV) of one phase of kN outputs.
template <int kV, int kN>
THIMBLE_DOT_INLINE void SumRows(const SparsePass& pass, const Mover& mover,
                                const SparseSum& sum, int64_t first) {
  const int64_t line = first * dot::kLineBytes;
  const uint32_t* at[kN][dot::kSlots + 1];
  float* kept[kN];
  ZippedSums<kV> sums[kN], before[kN];
  THIMBLE_DOT_UNROLL
  for (int n = 0; n < kN; ++n) {
    for (int64_t s = 0; s <= dot::kSlots; ++s) {
      at[n][s] = sum.pairs + 2 * int64_t{sum.starts[n * sum.next_starts + s]};
    }
    kept[n] =
        sum.chunk_sums + n * pass.output_sums() + first * dot::kLinePixels;
    SetZero(sums[n]);
  }
  AddSlot(at, 0, sum.slots[0] + line, sums);
  THIMBLE_DOT_UNROLL
  for (int n = 0; n < kN; ++n) {
    THIMBLE_DOT_UNROLL
    for (int v = 0; v < kV; ++v) {
      mover.FromBefore(sums[n].low[v], sums[n].high[v]);
      if (!sum.first) {
        const float* row = kept[n] + v * dot::kLinePixels;
        sums[n].low[v] = Add(sums[n].low[v], LoadFloats(row));
        sums[n].high[v] = Add(sums[n].high[v], LoadFloats(row + kLanes));
      }
    }
    before[n] = sums[n];
    SetZero(sums[n]);
  }
  AddSlot(at, 1, sum.slots[1] + line, sums);
  THIMBLE_DOT_UNROLL
  for (int n = 0; n < kN; ++n) {
    if (pass.behind_moves) {
      THIMBLE_DOT_UNROLL
      for (int v = 0; v < kV; ++v) {
        mover.FromBehind(sums[n].low[v], sums[n].high[v]);
      }
    }
    AddTo(before[n], sums[n]);
  }
  AddSlot(at, 2, sum.slots[2] + line, sums);
  THIMBLE_DOT_UNROLL
  for (int n = 0; n < kN; ++n) {
    if (!sum.last) {
      THIMBLE_DOT_UNROLL
      for (int v = 0; v < kV; ++v) {
        float* row = kept[n] + v * dot::kLinePixels;
        Store(sums[n].low[v], row);
        Store(sums[n].high[v], row + kLanes);
      }
    } else if (sum.sums != nullptr) {
      StoreSumRows(pass, sums[n], first, sum.height,
                   sum.sums + n * pass.output_sums());
    } else {
      StoreHalfRows(pass, sums[n], first, sum, n);
    }
  }
}

// The next `count` outputs.
THIMBLE_DOT_INLINE void Advance(const SparsePass& pass, int64_t count,
                                SparseSum& sum) {
  sum.starts += count * sum.next_starts;
  sum.chunk_sums += count * pass.output_sums();
  if (sum.sums != nullptr) sum.sums += count * pass.output_sums();
  for (int64_t g = 0; g < pass.segments(); ++g) {
    sum.to[g] += count * sum.next_to[g];
  }
}

}  // namespace

// One phase of some outputs of a tile.
void SumSparse(const SparsePass& pass, SparseSum sum) {
  const Mover mover(pass.cols);
#if THIMBLE_DOT_IS_AVX2
  for (int64_t o = 0; o < sum.outputs; ++o, Advance(pass, 1, sum)) {
    for (int64_t v = 0; v < sum.height; ++v) {
      SumRows<1, 1>(pass, mover, sum, v);
    }
  }
#else
  if (sum.height == 8) {
    for (int64_t o = 0; o < sum.outputs; ++o, Advance(pass, 1, sum)) {
      SumRows<8, 1>(pass, mover, sum, 0);
    }
    return;
  }
  int64_t o = 0;
  for (; o + 2 <= sum.outputs; o += 2, Advance(pass, 2, sum)) {
    SumRows<4, 2>(pass, mover, sum, 0);
  }
  if (o < sum.outputs) SumRows<4, 1>(pass, mover, sum, 0);
#endif
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
