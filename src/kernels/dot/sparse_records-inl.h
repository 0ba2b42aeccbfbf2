// SPDX-License-Identifier: Apache-2.0
//
// Records of what sparse weights keep: an offset into the tile (low half of 32
// bits) and a value of 16 bits, in lists by slot (sparse_pass.h). Included once
// per build, by way of foreach_build.h; hence no `#pragma once`.
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

// Entries of a row of the index, one column and value each.
struct RowEntries {
  const uint16_t* columns;
  const uint16_t* values;
  int64_t count;
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

  // Record and slot of a column.
  uint32_t Record(uint32_t column, uint16_t value) const {
    return (column / taps_ * channel_ + offsets_[column % taps_]) |
           static_cast<uint32_t>(value) << 16;
  }
  uint32_t Slot(uint32_t column) const { return slots_[column % taps_]; }

  uint32_t taps_;
  uint32_t channel_;
  uint32_t offsets_[16] = {};
  uint32_t slots_[16] = {};
};

#if !THIMBLE_DOT_IS_AVX2
// The same of the first `left` of sixteen columns from `base` on.
struct RecordLines {
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
  const Words channel =
      maker.taps_ == 1
          ? column
          : _mm512_srli_epi32(_mm512_mullo_epi32(column, SetWords(58255)), 19);
  const Words tap = _mm512_sub_epi32(
      column, _mm512_mullo_epi32(channel, SetWords(maker.taps_)));
  const Words offset = _mm512_add_epi32(
      _mm512_mullo_epi32(channel, SetWords(maker.channel_)),
      _mm512_permutexvar_epi32(tap, LoadWords(maker.offsets_)));
  to.records =
      JoinHalves(offset, LoadFirstLowHalves(values, static_cast<size_t>(left)));
  to.slots = _mm512_permutexvar_epi32(tap, LoadWords(maker.slots_));
}
#endif

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

// The first entry from `begin` on whose column is not below `limit`, which no
// block crosses.
inline int64_t FirstFrom(const RowEntries& entries, int64_t begin,
                         int64_t limit) {
  int64_t end = entries.count;
  while (begin < end) {
    const int64_t middle = (begin + end) / 2;
    if (entries.columns[middle] < limit) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return end;
}

}  // namespace
THIMBLE_DOT_END

#endif  // per-build include guard
