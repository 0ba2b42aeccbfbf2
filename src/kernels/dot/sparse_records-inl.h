// SPDX-License-Identifier: Apache-2.0
//
// Kept weights on their way from the index into pairs (sparse.h): in the order
// of outputs, and transposed. Included once per build, by way of
// foreach_build.h; hence no `#pragma once`.
//
// A record is an offset into the tile (low half) and a weight. Two of them
// become a pair when their middle halves change places: two offsets, two
// weights.
#if defined(THIMBLE_KERNELS_DOT_SPARSE_RECORDS_INL_H_) == \
    defined(THIMBLE_DOT_TOGGLE)
#ifdef THIMBLE_KERNELS_DOT_SPARSE_RECORDS_INL_H_
#undef THIMBLE_KERNELS_DOT_SPARSE_RECORDS_INL_H_
#else
#define THIMBLE_KERNELS_DOT_SPARSE_RECORDS_INL_H_
#endif

#include "kernels/dot/halves-inl.h"
#include "kernels/dot/lanes-inl.h"
#include "kernels/dot/sparse_index-inl.h"

THIMBLE_DOT_BEGIN
namespace {

using dot::SparsePass;
using dot::SparseScratch;
using dot::SparseWeights;

// Entries of a row of the index, one column and value each.
struct RowEntries {
  const uint16_t* columns;
  const uint16_t* values;
  int64_t count;
};

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

// Writes records of entries and which list each belongs to, sixteen at a time
// at most. A column is channel * taps + tap.
struct RecordMaker {
  // An offset is `channel` units for each channel, and those of the tap.
  RecordMaker(const SparsePass& pass, int64_t channel_offset)
      : taps_(static_cast<uint32_t>(pass.tap_count())),
        channel_(static_cast<uint32_t>(channel_offset)) {
    for (uint32_t t = 0; t < taps_; ++t) {
      offsets_[t] = static_cast<uint32_t>(pass.taps[t].line) *
                    (dot::kLineBytes / dot::kOffsetUnit);
      slots_[t] = static_cast<uint32_t>(pass.taps[t].slot);
    }
  }

  // Record, slot and channel of a column.
  uint32_t Record(uint32_t column, uint16_t value) const {
    return (column / taps_ * channel_ + offsets_[column % taps_]) |
           static_cast<uint32_t>(value) << 16;
  }
  uint32_t Slot(uint32_t column) const { return slots_[column % taps_]; }
  uint32_t Channel(uint32_t column) const { return column / taps_; }

  uint32_t taps_;
  uint32_t channel_;
  uint32_t offsets_[16] = {};
  uint32_t slots_[16] = {};
};

#if !THIMBLE_DOT_IS_AVX2
// The same of the first `left` of sixteen columns from `base` on.
struct RecordLines {
  Words channels;
  Words records;
  Words slots;
};
THIMBLE_DOT_INLINE void MakeRecords(const RecordMaker& maker,
                                    const uint16_t* columns, int64_t base,
                                    const uint16_t* values, int64_t left,
                                    RecordLines& to) {
  const Words column = _mm512_sub_epi32(LoadLowHalves(columns),
                                        SetWords(static_cast<uint32_t>(base)));
  // Columns have 16 bits: column * 58255 >> 19 is column / 9.
  to.channels =
      maker.taps_ == 1
          ? column
          : _mm512_srli_epi32(_mm512_mullo_epi32(column, SetWords(58255)), 19);
  const Words tap = _mm512_sub_epi32(
      column, _mm512_mullo_epi32(to.channels, SetWords(maker.taps_)));
  const Words offset = _mm512_add_epi32(
      _mm512_mullo_epi32(to.channels, SetWords(maker.channel_)),
      _mm512_permutexvar_epi32(tap, LoadWords(maker.offsets_)));
  to.records =
      JoinHalves(offset, LoadFirstLowHalves(values, static_cast<size_t>(left)));
  to.slots = _mm512_permutexvar_epi32(tap, LoadWords(maker.slots_));
}
#endif

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

// The record that completes a list of a slot: zeros, and no weight.
inline uint32_t ZeroRecord(const SparsePass& pass, int64_t slot) {
  const int64_t plane = pass.slot_plane[slot % dot::kSlots];
  const int64_t begin = plane * pass.tile.plane_bytes(pass.chunk);
  return static_cast<uint32_t>((pass.tile.bytes(pass.chunk) - begin) /
                               dot::kOffsetUnit);
}

// Appends entries of one chunk to the lists of three slots.
inline void AppendRecords(const RecordMaker& maker, const RowEntries& entries,
                          int64_t begin, int64_t end, int64_t base,
                          uint32_t* (&lists)[dot::kSlots]) {
#if THIMBLE_DOT_IS_AVX2
  for (int64_t i = begin; i < end; ++i) {
    const auto column = static_cast<uint32_t>(entries.columns[i] - base);
    *lists[maker.Slot(column)]++ = maker.Record(column, entries.values[i]);
  }
#else
  for (int64_t i = begin; i < end; i += kLanes) {
    const int64_t left = HWY_MIN(end - i, kLanes);
    RecordLines lines;
    MakeRecords(maker, entries.columns + i, base, entries.values + i, left,
                lines);
    const auto there = static_cast<__mmask16>((1u << left) - 1);
    THIMBLE_DOT_UNROLL
    for (uint32_t s = 0; s < dot::kSlots; ++s) {
      const __mmask16 in =
          _mm512_mask_cmpeq_epi32_mask(there, lines.slots, SetWords(s));
      Store(_mm512_maskz_compress_epi32(in, lines.records), lists[s]);
      lists[s] += __builtin_popcount(in);
    }
  }
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
    int64_t end = entries.count;
    if (k + 1 < pass.chunks()) {
      int64_t low = i;
      while (low < end) {
        const int64_t middle = (low + end) / 2;
        if (entries.columns[middle] < limit) {
          low = middle + 1;
        } else {
          end = middle;
        }
      }
    }
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

THIMBLE_DOT_END

#endif  // per-build include guard
