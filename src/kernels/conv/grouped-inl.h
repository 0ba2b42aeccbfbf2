// SPDX-License-Identifier: Apache-2.0
//
// Register tiles of the grouped convolution (grouped.h). Included once per SIMD
// target, after <hwy/highway.h>; hence no `#pragma once`.
#if defined(THIMBLE_KERNELS_CONV_GROUPED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef THIMBLE_KERNELS_CONV_GROUPED_INL_H_
#undef THIMBLE_KERNELS_CONV_GROUPED_INL_H_
#else
#define THIMBLE_KERNELS_CONV_GROUPED_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "kernels/conv/grouped.h"
#include "kernels/conv/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

// Targets with at least 8 lanes have this way.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3

// Channels of a chunk (see SumGroups).
constexpr int64_t kChunkChannels = 64;

// Outputs of a register tile where rows have `row_vectors` vectors. Sums,
// positions and a broadcast weight fill 16 registers (AVX2), or up to 28 of 32.
// The smaller tile makes up numbers that the larger does not divide.
#if HWY_TARGET == HWY_AVX2
constexpr int64_t LargeOutputs(int64_t row_vectors) {
  return row_vectors == 4 ? 3 : 6;
}
constexpr int64_t SmallOutputs(int64_t row_vectors) {
  return row_vectors == 4 ? 2 : 4;
}
#else
constexpr int64_t LargeOutputs(int64_t) { return 8; }
constexpr int64_t SmallOutputs(int64_t) { return 4; }
#endif
static_assert(LargeOutputs(1) <= conv::kBlockOutputs);

// Outputs as `large` blocks, then `small` ones: the fewest outputs past the
// end, then the fewest blocks.
struct OutputBlocks {
  int64_t large = 0;
  int64_t small = 0;
  int64_t large_outputs = 0;
  int64_t small_outputs = 0;

  int64_t count() const { return large + small; }
  int64_t outputs(int64_t block) const {
    return block < large ? large_outputs : small_outputs;
  }
  int64_t first(int64_t block) const {
    return block <= large
               ? block * large_outputs
               : large * large_outputs + (block - large) * small_outputs;
  }
};

OutputBlocks SplitOutputs(int64_t outputs, int64_t row_vectors) {
  OutputBlocks best;
  int64_t least = 0;
  for (int64_t small = 0; small <= 2; ++small) {
    OutputBlocks blocks;
    blocks.large_outputs = LargeOutputs(row_vectors);
    blocks.small_outputs = SmallOutputs(row_vectors);
    blocks.small = small;
    const int64_t rest = outputs - small * blocks.small_outputs;
    blocks.large = rest <= 0 ? 0 : conv::CeilDiv(rest, blocks.large_outputs);
    const int64_t covered = blocks.first(blocks.count());
    if (best.count() == 0 || covered < least) {
      least = covered;
      best = blocks;
    }
  }
  return best;
}

// Moves sums by one column. `width` positions of a row, or of a piece of a
// vector that rows of several images share.
struct Mover {
  using Indices =
      decltype(hn::IndicesFromVec(D(), hn::Zero(hn::RebindToSigned<D>())));
  Indices next, previous;           // from which lane each lane takes its value
  hn::Mask<D> not_first, not_last;  // of the row

  explicit Mover(int64_t width) {
    const D d;
    const hn::RebindToSigned<D> di;
    const auto lanes = static_cast<int32_t>(LaneCount());
    const auto last = static_cast<int32_t>(HWY_MIN(width, lanes) - 1);
    const auto lane = hn::Iota(di, 0);
    const auto wrap = hn::Set(di, lanes - 1);
    const auto column = hn::And(lane, hn::Set(di, last));
    const auto up = hn::And(hn::Add(lane, wrap), wrap);
    const auto down = hn::And(hn::Add(lane, hn::Set(di, 1)), wrap);
    next = hn::IndicesFromVec(d, up);
    previous = hn::IndicesFromVec(d, down);
    not_first = hn::RebindMask(d, hn::Ne(column, hn::Zero(di)));
    not_last = hn::RebindMask(d, hn::Ne(column, hn::Set(di, last)));
  }
};

// sums[q] = sums[q - 1] for kMove 1, sums[q + 1] for -1, within rows of kRow
// vectors.
template <int64_t kMove, int64_t kV, int64_t kRow>
HWY_INLINE void MoveSums(const Mover& mover, V* sums) {
  constexpr int64_t kEdge = kMove > 0 ? 0 : kRow - 1;
  const auto inside = kMove > 0 ? mover.not_first : mover.not_last;
  V turned[kV];
  THIMBLE_UNROLL
  for (int64_t v = 0; v < kV; ++v) {
    turned[v] =
        hn::TableLookupLanes(sums[v], kMove > 0 ? mover.next : mover.previous);
  }
  THIMBLE_UNROLL
  for (int64_t v = 0; v < kV; ++v) {
    const int64_t beside = HWY_MIN(HWY_MAX(v - kMove, 0), kV - 1);
    sums[v] = v % kRow == kEdge
                  ? hn::IfThenElseZero(inside, turned[v])
                  : hn::IfThenElse(inside, turned[v], turned[beside]);
  }
}

// The part of a group that a register tile sums: taps that meet a row.
struct GroupSpan {
  const float* weights;  // [channel][tap][output], from the first tap on
  int64_t channel_weights;
  int64_t move;
  int64_t count;
  int64_t offsets[conv::kGroupTaps];
};

struct GroupedSum {
  GroupSpan spans[conv::kGroups];
  int64_t span_count;
  int64_t channels;
  int64_t channel_floats;  // of the tile
  int64_t split_floats;    // from one image of a pair to the other, if read so
  // Where sums go: those of neighbouring outputs are `output_floats` apart.
  // With pair_floats, the upper half of each vector is another image's row.
  float* out;
  int64_t output_floats;
  int64_t pair_floats;
};

// Vector v of positions. kSplit: rows of two images, which lie `split` floats
// apart and share vectors, as StoreSums tells.
template <bool kSplit>
HWY_INLINE V LoadPositions(const float* in, int64_t v, int64_t split) {
  const D d;
  const int64_t lanes = LaneCount();
  if constexpr (!kSplit) {
    (void)split;
    return hn::LoadU(d, in + v * lanes);
  } else {
#if HWY_TARGET == HWY_AVX3
    const hn::Half<D> half;
    const float* at = in + v * lanes / 2;
    return hn::Combine(d, hn::LoadU(half, at + split), hn::LoadU(half, at));
#else
    return hn::LoadU(d, in + v / 2 * lanes + v % 2 * split);
#endif
  }
}

// Either the positions or the weights are in registers while the others pass:
// the fewer of them.
template <int64_t kO, int64_t kV, bool kSplit>
HWY_INLINE void AddTap(const float* HWY_RESTRICT in, int64_t split,
                       const float* HWY_RESTRICT w, V (&acc)[kO][kV]) {
  const D d;
  V kept[HWY_MIN(kO, kV)];
  if constexpr (kV <= kO) {
    THIMBLE_UNROLL
    for (int64_t v = 0; v < kV; ++v) {
      kept[v] = LoadPositions<kSplit>(in, v, split);
    }
    THIMBLE_UNROLL
    for (int64_t o = 0; o < kO; ++o) {
      const V factor = hn::Set(d, w[o]);
      THIMBLE_UNROLL
      for (int64_t v = 0; v < kV; ++v) {
        acc[o][v] = hn::MulAdd(factor, kept[v], acc[o][v]);
      }
    }
  } else {
    THIMBLE_UNROLL
    for (int64_t o = 0; o < kO; ++o) kept[o] = hn::Set(d, w[o]);
    THIMBLE_UNROLL
    for (int64_t v = 0; v < kV; ++v) {
      const V x = LoadPositions<kSplit>(in, v, split);
      THIMBLE_UNROLL
      for (int64_t o = 0; o < kO; ++o) {
        acc[o][v] = hn::MulAdd(kept[o], x, acc[o][v]);
      }
    }
  }
}

template <int64_t kO, int64_t kV, bool kSplit>
HWY_INLINE void AddSpan(const GroupSpan& span, int64_t first, int64_t channels,
                        int64_t channel_floats, int64_t split,
                        const float* HWY_RESTRICT tile, V (&acc)[kO][kV]) {
  const float* HWY_RESTRICT weights =
      span.weights + first * span.channel_weights;
  tile += first * channel_floats;
  for (int64_t c = channels; c != 0; --c) {
    const float* HWY_RESTRICT w = weights;
    for (int64_t t = 0; t < span.count; ++t, w += kO) {
      AddTap<kO, kV, kSplit>(tile + span.offsets[t], split, w, acc);
    }
    tile += channel_floats;
    weights += span.channel_weights;
  }
}

// With pair_floats, halves of a vector (or every second vector) are rows of
// different images.
template <int64_t kV>
HWY_INLINE void StoreSums(const V* sums, int64_t pair_floats, float* out) {
  const D d;
  const int64_t lanes = LaneCount();
  if (pair_floats == 0) {
    THIMBLE_UNROLL
    for (int64_t v = 0; v < kV; ++v) hn::StoreU(sums[v], d, out + v * lanes);
    return;
  }
  THIMBLE_UNROLL
  for (int64_t v = 0; v < kV; ++v) {
#if HWY_TARGET == HWY_AVX3
    const hn::Half<D> half;
    float* to = out + v * lanes / 2;
    hn::StoreU(hn::LowerHalf(half, sums[v]), half, to);
    hn::StoreU(hn::UpperHalf(half, sums[v]), half, to + pair_floats);
#else
    hn::StoreU(sums[v], d, out + v / 2 * lanes + v % 2 * pair_floats);
#endif
  }
}

// Asks for the lines that `positions` sums of each output will be stored to.
HWY_INLINE void PrefetchSums(const GroupedSum& sum, int64_t outputs,
                             int64_t positions) {
  for (int64_t o = 0; o < outputs; ++o) {
    const float* at = sum.out + o * sum.output_floats;
    for (int64_t i = 0; i < positions; i += 16) {
      __builtin_prefetch(at + i, 1, 2);
      if (sum.pair_floats != 0) {
        __builtin_prefetch(at + sum.pair_floats + i, 1, 2);
      }
    }
  }
}

template <int64_t kMove, int64_t kO, int64_t kV, int64_t kRow>
HWY_INLINE void MoveGroup(const Mover& mover, V (&acc)[kO][kV]) {
  THIMBLE_UNROLL
  for (int64_t o = 0; o < kO; ++o) {
    MoveSums<kMove, kV, kRow>(mover, acc[o]);
  }
}

// Adds what one group gives for channels [c, c + channels). A group that moves
// is summed alone, while what there was before is put aside.
template <int64_t kO, int64_t kV, int64_t kRow, bool kSplit>
HWY_INLINE void AddGroup(const GroupedSum& sum, const GroupSpan& span,
                         const Mover& mover, bool first, int64_t c,
                         int64_t channels, const float* tile,
                         float* HWY_RESTRICT aside, V (&acc)[kO][kV]) {
  const D d;
  const int64_t lanes = LaneCount();
  const bool put_aside = span.move != 0 && !first;
  if (put_aside) {
    THIMBLE_UNROLL
    for (int64_t i = 0; i < kO * kV; ++i) {
      V& at = acc[i / kV][i % kV];
      hn::Store(at, d, aside + i * lanes);
      at = hn::Zero(d);
    }
  }
  AddSpan<kO, kV, kSplit>(span, c, channels, sum.channel_floats,
                          sum.split_floats, tile, acc);
  if (span.move > 0) {
    MoveGroup<1, kO, kV, kRow>(mover, acc);
  } else if (span.move < 0) {
    MoveGroup<-1, kO, kV, kRow>(mover, acc);
  }
  if (put_aside) {
    THIMBLE_UNROLL
    for (int64_t i = 0; i < kO * kV; ++i) {
      V& at = acc[i / kV][i % kV];
      at = hn::Add(at, hn::Load(d, aside + i * lanes));
    }
  }
}

// kO outputs at kV vectors of positions, which are whole rows of kRow vectors.
// Channels go in chunks whose positions and weights stay in the L1 cache while
// the groups pass over them.
template <int64_t kO, int64_t kV, int64_t kRow, bool kSplit = false>
void SumGroups(const GroupedSum& sum, const Mover& mover, const float* tile) {
  const D d;
  HWY_ALIGN float aside[kO * kV * hn::MaxLanes(d)];
  V acc[kO][kV];
  THIMBLE_UNROLL
  for (int64_t i = 0; i < kO * kV; ++i) acc[i / kV][i % kV] = hn::Zero(d);
  for (int64_t c = 0; c < sum.channels; c += kChunkChannels) {
    const int64_t channels = HWY_MIN(kChunkChannels, sum.channels - c);
    for (int64_t g = 0; g < sum.span_count; ++g) {
      AddGroup<kO, kV, kRow, kSplit>(sum, sum.spans[g], mover, c + g == 0, c,
                                     channels, tile, aside, acc);
    }
  }
  THIMBLE_UNROLL
  for (int64_t o = 0; o < kO; ++o) {
    StoreSums<kV>(acc[o], sum.pair_floats, sum.out + o * sum.output_floats);
  }
}

using SumGroupsFunction = void (*)(const GroupedSum&, const Mover&,
                                   const float*);

// kLarge or kSmall outputs, which belong together.
template <int64_t kLarge, int64_t kSmall, int64_t kV, int64_t kRow,
          bool kSplit = false>
SumGroupsFunction ChooseOutputs(int64_t outputs) {
  return outputs == kLarge ? &SumGroups<kLarge, kV, kRow, kSplit>
                           : &SumGroups<kSmall, kV, kRow, kSplit>;
}

// Rows that one register tile can take, where they are vectors.
#if HWY_TARGET == HWY_AVX2
constexpr int64_t kMostRows = 1;
#else
constexpr int64_t kMostRows = 3;
#endif

// The register tile for `outputs` outputs and `rows` rows of positions, each
// of `row_vectors` vectors, for images of `width` columns; `split`: pairs of
// images are read where they lie.
SumGroupsFunction ChooseTile(int64_t outputs, int64_t width,
                             int64_t row_vectors, int64_t rows, bool split) {
#if HWY_TARGET == HWY_AVX2
  (void)rows;
  if (row_vectors == 4) return ChooseOutputs<3, 2, 4, 4>(outputs);
  if (split) return ChooseOutputs<6, 4, 2, 1, true>(outputs);
  if (width == 8) return ChooseOutputs<6, 4, 2, 1>(outputs);
  return ChooseOutputs<6, 4, 2, 2>(outputs);
#else
  (void)width;
  if (row_vectors == 2) return ChooseOutputs<8, 4, 2, 2>(outputs);
  if (split) {
    if (rows == 3) return ChooseOutputs<8, 4, 3, 1, true>(outputs);
    if (rows == 2) return ChooseOutputs<8, 4, 2, 1, true>(outputs);
    return ChooseOutputs<8, 4, 1, 1, true>(outputs);
  }
  if (rows == 3) return ChooseOutputs<8, 4, 3, 1>(outputs);
  if (rows == 2) return ChooseOutputs<8, 4, 2, 1>(outputs);
  return ChooseOutputs<8, 4, 1, 1>(outputs);
#endif
}

#endif  // 8 lanes

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
