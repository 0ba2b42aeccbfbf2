// SPDX-License-Identifier: Apache-2.0
//
// Pairs of kept weights by channel (sparse.h), for the gradient of the input: a
// block of channels at a time. Included once per build, by way of
// foreach_build.h; hence no `#pragma once`.
//
// Where the tile will be, values of some channels are put to their dense
// places, [column][output]. A list is what is there of the columns of its
// taps, one after the other.
#include "kernels/dot/sparse_rows-inl.h"

THIMBLE_DOT_BEGIN
namespace {

// What lies where nothing is kept: not a number, and not the one that
// arithmetic makes. A weight that is it anyway becomes the one below.
constexpr uint16_t kNothing = 0xFFFF;

// About as many channels as fill the records.
inline int64_t WantedChannels(const SparsePass& pass,
                              const SparseWeights& weights, int64_t most) {
  const int64_t unit = weights.pattern.block.inputs;
  const int64_t mean = weights.pattern.values() / pass.outputs +
                       pass.chunks() * pass.slots() / 2 + 1;
  const int64_t wanted = pass.records * 15 / 16 / mean / unit * unit;
  return HWY_MIN(HWY_MIN(most, pass.block / unit * unit),
                 HWY_MAX(wanted, unit));
}

// A function of its own, so that all of it stays in registers.
HWY_NOINLINE void PlaceRow(const RowEntries& entries, int64_t pitch,
                           uint16_t* to) {
  const uint16_t* column = entries.columns;
  const uint16_t* value = entries.values;
  const uint16_t* const end = column + entries.count;
  for (; column < end; ++column, ++value) {
    to[*column * pitch] = *value == kNothing ? kNothing - 1 : *value;
  }
}

// Puts the weights of channels [begin, end) to their places, and moves row_at
// past them.
inline void PlaceWeights(const SparsePass& pass, const SparseWeights& weights,
                         const RowReader& reader, int64_t begin, int64_t end,
                         const SparseScratch& scratch) {
  auto* const dense = reinterpret_cast<uint16_t*>(scratch.tile);
  const int64_t pitch = pass.dense_pitch(), taps = pass.tap_count();
  std::memset(
      dense, 0xFF,
      static_cast<size_t>((end - begin) * taps * pitch) * sizeof(uint16_t));
  const int64_t rows = weights.pattern.block.outputs;
  int64_t first = 0;
  for (int64_t o = 0; o < pass.channels; ++o) {
    int64_t read = 0;
    const RowEntries entries =
        reader.Read(o, first, scratch.row_at[o], begin, end, read);
    uint16_t* to = dense + o - begin * taps * pitch;
    PlaceRow(entries, pitch, to);
    scratch.row_at[o] = static_cast<uint16_t>(scratch.row_at[o] + read);
    if (rows == 1) {
      first += weights.pattern.counts[o];
    } else if ((o + 1) % rows == 0) {
      first += weights.pattern.counts[o / rows];
    }
  }
}

// Appends records of one column: outputs [0, count) from `dense` on, of which
// each one's offset is `step` behind the one before.
inline uint32_t* AppendColumn(const uint16_t* dense, int64_t count,
                              uint32_t offset, uint32_t step, uint32_t* to) {
#if THIMBLE_DOT_IS_AVX2
  for (int64_t o = 0; o < count; ++o, offset += step) {
    if (dense[o] == kNothing) continue;
    *to++ = offset | static_cast<uint32_t>(dense[o]) << 16;
  }
#else
  const Words lanes =
      _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  Words offsets = _mm512_add_epi32(SetWords(offset),
                                   _mm512_mullo_epi32(lanes, SetWords(step)));
  const Words next = SetWords(kLanes * step);
  const Words nothing = SetWords(kNothing);
  for (int64_t o = 0; o < count; o += kLanes) {
    const Words values = LoadLowHalves(dense + o);
    __mmask16 there = _mm512_cmpneq_epi32_mask(values, nothing);
    if (count - o < kLanes) there &= FirstLanes(static_cast<size_t>(count - o));
    Store(_mm512_maskz_compress_epi32(there, JoinHalves(offsets, values)), to);
    to += __builtin_popcount(there);
    offsets = _mm512_add_epi32(offsets, next);
  }
#endif
  return to;
}

// Appends the lists of one channel, whose columns begin at `dense`, from pair
// `pair` on. Returns where the next one's begin.
inline uint32_t PutChannel(const SparsePass& pass, const uint16_t* dense,
                           uint32_t* starts, uint32_t pair,
                           const SparseScratch& scratch) {
  const auto step = static_cast<uint32_t>(pass.tile.lines * dot::kLineBytes /
                                          dot::kOffsetUnit);
  for (int64_t k = 0; k < pass.chunks(); ++k) {
    const int64_t first = k * pass.chunk;
    const int64_t count = HWY_MIN(pass.chunk, pass.channels - first);
    for (int64_t s = 0; s < pass.slots(); ++s) {
      *starts++ = pair;
      uint32_t* const begin = scratch.records + 2 * int64_t{pair};
      uint32_t* to = begin;
      for (int64_t t = 0; t < pass.tap_count(); ++t) {
        if (pass.taps[t].slot != s) continue;
        const auto offset = static_cast<uint32_t>(
            pass.taps[t].line * dot::kLineBytes / dot::kOffsetUnit);
        to = AppendColumn(dense + t * pass.dense_pitch() + first, count, offset,
                          step, to);
      }
      if ((to - begin) % 2 != 0) *to++ = ZeroRecord(pass, s);
      pair += static_cast<uint32_t>((to - begin) / 2);
    }
  }
  *starts = pair;
  return pair;
}

// Records of some channels, whose columns begin at `dense`, and what completes
// their pairs at most.
inline int64_t CountRecords(const SparsePass& pass, const uint16_t* dense,
                            int64_t channels) {
  int64_t count = channels * pass.chunks() * pass.slots();
  const int64_t pitch = pass.dense_pitch();
  for (int64_t i = 0; i < channels * pass.tap_count(); ++i) {
    for (int64_t o = 0; o < pass.channels; ++o) {
      count += dense[i * pitch + o] != kNothing ? 1 : 0;
    }
  }
  return count;
}

}  // namespace

// Sets row_at to the first entries of channels from `channel` on.
void BeginTranspose(const SparsePass& pass, const SparseWeights& weights,
                    int64_t channel, const SparseScratch& scratch) {
  const WeightBlock& block = weights.pattern.block;
  const int64_t column = channel / block.inputs * pass.tap_count();
  const ColumnReader reader(weights.pattern);
  int64_t first = 0;
  for (int64_t o = 0; o < pass.channels; ++o) {
    const int64_t row = o / block.outputs;
    scratch.row_at[o] = static_cast<uint16_t>(
        column == 0 ? 0 : reader.CountBelow(row, first, column));
    if ((o + 1) % block.outputs == 0) first += weights.pattern.counts[row];
  }
}

// Pairs of channels [channel, end), as many of them as fit. Returns how many.
// The call before was that of the channels before. The tile is used for it.
int64_t TransposeRecords(const SparsePass& pass, const SparseWeights& weights,
                         int64_t channel, int64_t end,
                         const SparseScratch& scratch) {
  const RowReader reader(weights, pass.tap_count(), scratch);
  const int64_t unit = weights.pattern.block.inputs;
  const int64_t lists = pass.chunks() * pass.slots();
  const int64_t wanted = WantedChannels(pass, weights, end - channel);
  const int64_t columns = pass.tap_count() * pass.dense_pitch();
  const auto* dense = reinterpret_cast<const uint16_t*>(scratch.tile);
  uint32_t pair = 0;
  int64_t done = 0;
  bool full = false;
  while (done < wanted && !full) {
    const int64_t some =
        HWY_MIN(wanted - done, pass.dense_channels() / unit * unit);
    PlaceWeights(pass, weights, reader, channel + done, channel + done + some,
                 scratch);
    for (int64_t c = 0; c < some && !full; c += unit) {
      const int64_t left = pass.records - 2 * int64_t{pair};
      full = left < unit * pass.output_records() &&
             left < CountRecords(pass, dense + c * columns, unit);
      for (int64_t i = 0; i < unit && !full; ++i, ++done) {
        pair = PutChannel(pass, dense + (c + i) * columns,
                          scratch.starts + done * lists, pair, scratch);
      }
    }
  }
  if (full) BeginTranspose(pass, weights, channel + done, scratch);
  for (int64_t i = 0; i < 2 * int64_t{pair}; i += kLanes) {
    uint32_t* at = scratch.records + i;
    Store(SwapMiddles(LoadWords(at)), at);
  }
  return done;
}

THIMBLE_DOT_END
