// SPDX-License-Identifier: Apache-2.0
//
// Pairs of kept weights from their index (sparse.h): by output, or transposed
// for the gradient of the input, a block of either at a time. Included once per
// build, by way of foreach_build.h; hence no `#pragma once`.
//
// Two records, of which the values are weights, become a pair when their middle
// halves change places: two offsets, two weights.
#include "kernels/dot/sparse_records-inl.h"

THIMBLE_DOT_BEGIN
namespace {

using dot::SparseScratch;
using dot::SparseWeights;

// Reads rows of weights; blocks become single entries.
class RowReader {
 public:
  RowReader(const SparseWeights& weights, int64_t taps,
            const SparseScratch& scratch)
      : weights_(weights),
        reader_(weights.pattern),
        taps_(taps),
        columns_(scratch.columns),
        values_(scratch.values) {}

  const ColumnReader& reader() const { return reader_; }

  // Of output `output`, whose row's entries begin at `first`: from entry `at`
  // on, which is the first one of channel `begin`, those below channel `end`.
  // `read` is how many entries of the index they are.
  RowEntries Read(int64_t output, int64_t first, int64_t at, int64_t begin,
                  int64_t end, int64_t& read) const {
    const WeightBlock& block = weights_.pattern.block;
    const int64_t inputs = block.inputs;
    read = reader_.Read(output / block.outputs, first, at,
                        begin / inputs * taps_, end / inputs * taps_, columns_);
    const uint16_t* values = weights_.values + (first + at) * block.values() +
                             output % block.outputs * inputs;
    if (block.values() == 1) return {columns_, values, read};
    // From the last one on, so that columns are still there.
    for (int64_t i = read - 1; i >= 0; --i) {
      const int64_t column =
          columns_[i] / taps_ * inputs * taps_ + columns_[i] % taps_;
      for (int64_t j = inputs - 1; j >= 0; --j) {
        columns_[i * inputs + j] = static_cast<uint16_t>(column + j * taps_);
        values_[i * inputs + j] = values[i * block.values() + j];
      }
    }
    return {columns_, values_, read * inputs};
  }

 private:
  const SparseWeights& weights_;
  ColumnReader reader_;
  int64_t taps_;
  uint16_t* columns_;
  uint16_t* values_;
};

THIMBLE_DOT_INLINE Words SwapMiddles(Words v) {
#if THIMBLE_DOT_IS_AVX2
  return {_mm256_shufflehi_epi16(_mm256_shufflelo_epi16(v.low, 0xD8), 0xD8),
          _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(v.high, 0xD8), 0xD8)};
#else
  return _mm512_shufflehi_epi16(
      _mm512_shufflelo_epi16(v, static_cast<_MM_PERM_ENUM>(0xD8)),
      static_cast<_MM_PERM_ENUM>(0xD8));
#endif
}

// One output's records, chunk by chunk, from pair `pair` on. Returns where the
// next one's begin.
inline uint32_t PutOutput(const SparsePass& pass, const RecordMaker& maker,
                          const RowEntries& entries,
                          const SparseScratch& scratch, uint32_t* starts,
                          uint32_t pair) {
  int64_t i = 0;
  for (int64_t k = 0; k < pass.chunks(); ++k) {
    const int64_t base = k * pass.chunk * pass.tap_count();
    const int64_t limit = base + pass.chunk * pass.tap_count();
    const int64_t end =
        k + 1 == pass.chunks() ? entries.count : FirstFrom(entries, i, limit);
    uint32_t* lists[dot::kSlots];
    for (int64_t s = 0; s < dot::kSlots; ++s) {
      lists[s] = scratch.lists + s * pass.list_records();
    }
    AppendRecords(maker, entries, i, end, base, lists);
    i = end;
    for (int64_t s = 0; s < dot::kSlots; ++s) {
      const uint32_t* list = scratch.lists + s * pass.list_records();
      int64_t count = lists[s] - list;
      if (count % 2 != 0) *lists[s] = ZeroRecord(pass, s);
      count = (count + 1) / 2;
      *starts++ = pair;
      for (int64_t p = 0; p < count; p += kLanes / 2) {
        Store(SwapMiddles(LoadWords(list + 2 * p)),
              scratch.records + 2 * (pair + p));
      }
      pair += static_cast<uint32_t>(count);
    }
  }
  *starts = pair;
  return pair;
}

// Channels [begin, end) of the index, whose entries become lists.
struct ChannelBlock {
  int64_t begin;
  int64_t end;
};

// Calls f(output, entries) for all rows of weights. `read` says how many
// entries of the index they were.
template <typename F>
THIMBLE_DOT_INLINE void ForRows(const SparsePass& pass,
                                const SparseWeights& weights,
                                const RowReader& reader,
                                const ChannelBlock& block, uint16_t* row_at,
                                const F& f) {
  const int64_t rows = weights.pattern.block.outputs;
  int64_t first = 0;
  for (int64_t o = 0; o < pass.channels; ++o) {
    int64_t read = 0;
    const RowEntries entries =
        reader.Read(o, first, row_at[o], block.begin, block.end, read);
    f(o, entries, read);
    if ((o + 1) % rows == 0) first += weights.pattern.counts[o / rows];
  }
}

// Of each column of the block: its list in chunk 0 (low half), and by how much
// its tap's line is behind the channel's first one.
inline void ListColumns(const SparsePass& pass, int64_t channels,
                        uint32_t* table) {
  const int64_t taps = pass.tap_count();
  for (int64_t i = 0; i < channels * taps; ++i) {
    const dot::SparseTap& tap = pass.taps[i % taps];
    const int64_t list = i / taps * pass.chunks() * pass.slots() + tap.slot;
    const int64_t offset = tap.line * dot::kLineBytes / dot::kOffsetUnit;
    table[i] = static_cast<uint32_t>(list | offset << 16);
  }
}

// From how many entries each column has in each chunk, [chunk][column], to how
// many records each list has.
inline void CountLists(const SparsePass& pass, int64_t channels,
                       const SparseScratch& scratch) {
  const int64_t columns = channels * pass.tap_count();
  std::memset(scratch.places, 0,
              static_cast<size_t>(channels * pass.chunks() * pass.slots()) *
                  sizeof(uint32_t));
  for (int64_t k = 0; k < pass.chunks(); ++k) {
    for (int64_t i = 0; i < columns; ++i) {
      const uint32_t list = scratch.table[i] & 0xFFFFu;
      scratch.places[list + k * pass.slots()] +=
          scratch.counts[k * columns + i];
    }
  }
}

// From how many records each list has to where it begins, in pairs and in
// records, for as many of `channels` channels as fit, whole units of them.
// Returns how many.
inline int64_t PlaceLists(const SparsePass& pass, int64_t channels,
                          int64_t unit, const SparseScratch& scratch) {
  const int64_t lists = pass.chunks() * pass.slots();
  uint32_t pair = 0;
  int64_t fit = 0;
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t i = 0; i < lists; ++i) {
      uint32_t& place = scratch.places[c * lists + i];
      const uint32_t count = place;
      scratch.starts[c * lists + i] = pair;
      place = 2 * pair;
      pair += (count + 1) / 2;
      if (2 * static_cast<int64_t>(pair) > pass.records) return fit;
      if (count % 2 != 0) {
        scratch.records[2 * pair - 1] = ZeroRecord(pass, i % pass.slots());
      }
    }
    if ((c + 1) % unit == 0) fit = c + 1;
  }
  scratch.starts[channels * lists] = pair;
  return fit;
}

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

}  // namespace

// Pairs of outputs [output, end), as many of them as fit. Returns how many.
// `first`: of the matrix's entries, those of the row of `output`.
int64_t UnpackRecords(const SparsePass& pass, const SparseWeights& weights,
                      int64_t output, int64_t end, int64_t first,
                      const SparseScratch& scratch) {
  const WeightBlock& block = weights.pattern.block;
  const RowReader reader(weights, pass.tap_count(), scratch);
  const RecordMaker maker(
      pass, pass.tile.lines * (dot::kLineBytes / dot::kOffsetUnit));
  uint32_t pair = 0;
  int64_t o = output;
  for (; o < end && o - output < pass.block; ++o) {
    const int64_t kept = weights.pattern.counts[o / block.outputs];
    const int64_t most = kept * block.inputs + pass.chunks() * pass.slots();
    if (2 * pair + most > pass.records) break;
    int64_t read = 0;
    const RowEntries entries = reader.Read(o, first, 0, 0, pass.channels, read);
    pair = PutOutput(
        pass, maker, entries, scratch,
        scratch.starts + (o - output) * pass.chunks() * pass.slots(), pair);
    if ((o + 1) % block.outputs == 0) first += kept;
  }
  return o - output;
}

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
// The call before was that of the channels before.
int64_t TransposeRecords(const SparsePass& pass, const SparseWeights& weights,
                         int64_t channel, int64_t end,
                         const SparseScratch& scratch) {
  const RowReader reader(weights, pass.tap_count(), scratch);
  const int64_t taps = pass.tap_count(), base = channel * taps;
  const int64_t lists = pass.chunks() * pass.slots();
  int64_t count = WantedChannels(pass, weights, end - channel);
  const int64_t columns = count * taps;
  std::memset(scratch.counts, 0,
              static_cast<size_t>(pass.chunks() * columns) * sizeof(uint16_t));
  ForRows(pass, weights, reader, {channel, channel + count}, scratch.row_at,
          [&](int64_t o, const RowEntries& entries, int64_t) {
            uint16_t* counts = scratch.counts + o / pass.chunk * columns - base;
            for (int64_t i = 0; i < entries.count; ++i) {
              ++counts[entries.columns[i]];
            }
          });
  ListColumns(pass, count, scratch.table);
  CountLists(pass, count, scratch);
  count = PlaceLists(pass, count, weights.pattern.block.inputs, scratch);
  ForRows(pass, weights, reader, {channel, channel + count}, scratch.row_at,
          [&](int64_t o, const RowEntries& entries, int64_t read) {
            const auto line =
                static_cast<uint32_t>(o % pass.chunk * pass.tile.lines *
                                      dot::kLineBytes / dot::kOffsetUnit);
            uint32_t* places = scratch.places + o / pass.chunk * pass.slots();
            const uint32_t* table = scratch.table - base;
            uint32_t* records = scratch.records;
            for (int64_t i = 0; i < entries.count; ++i) {
              const uint32_t to = table[entries.columns[i]];
              records[places[to & 0xFFFFu]++] =
                  ((to >> 16) + line) | uint32_t{entries.values[i]} << 16;
            }
            scratch.row_at[o] = static_cast<uint16_t>(scratch.row_at[o] + read);
          });
  const int64_t all = 2 * int64_t{scratch.starts[count * lists]};
  for (int64_t i = 0; i < all; i += kLanes) {
    uint32_t* at = scratch.records + i;
    Store(SwapMiddles(LoadWords(at)), at);
  }
  return count;
}

THIMBLE_DOT_END
