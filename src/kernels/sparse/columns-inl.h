// SPDX-License-Identifier: Apache-2.0
//
// Columns of an index (index.h), and entries of a row sorted by their slots,
// whole vectors at a time where the target can. Included once per SIMD target,
// after <hwy/highway.h>; hence no `#pragma once`.
#if defined(THIMBLE_KERNELS_SPARSE_COLUMNS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef THIMBLE_KERNELS_SPARSE_COLUMNS_INL_H_
#undef THIMBLE_KERNELS_SPARSE_COLUMNS_INL_H_
#else
#define THIMBLE_KERNELS_SPARSE_COLUMNS_INL_H_
#endif

#include <hwy/highway.h>

#include <bit>
#include <cstdint>
#include <cstring>

#include "kernels/elements-inl.h"
#include "kernels/sparse/entries.h"
#include "kernels/sparse/index.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3

using Words = hn::RebindToSigned<D>;

// first, first + 1, …
HWY_INLINE hn::Vec<Words> CountFrom(int64_t first) {
  const Words d;
  alignas(64) static constexpr int32_t kLanes[16] = {
      0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return hn::Add(hn::Load(d, kLanes), hn::Set(d, static_cast<int32_t>(first)));
}

// Packed columns, as many as lanes, from bit `bit` of the index on. n of them
// exist, the others are anything; no word past these is read.
HWY_INLINE hn::Vec<Words> PackedVector(const Pattern& pattern, uint64_t bit,
                                       int64_t n) {
  const Words di;
  const hn::RebindToUnsigned<D> d;
  const auto bits = static_cast<uint32_t>(pattern.column_bits);
  const auto skip = static_cast<uint32_t>(bit % 32);
  const size_t words = (skip + static_cast<size_t>(n) * bits + 31) / 32;
  const auto all = LoadFirst(
      d, reinterpret_cast<const uint32_t*>(pattern.bits + bit / 32 * 4), words);
  const auto at =
      hn::Add(hn::Mul(hn::BitCast(d, CountFrom(0)), hn::Set(d, bits)),
              hn::Set(d, skip));
  const auto word = hn::BitCast(di, hn::ShiftRight<5>(at));
  const auto shift = hn::And(at, hn::Set(d, 31));
  const auto low = hn::TableLookupLanes(all, hn::IndicesFromVec(d, word));
  const auto high = hn::TableLookupLanes(
      all, hn::IndicesFromVec(d, hn::Add(word, hn::Set(di, 1))));
  const auto both =
      hn::Or(hn::Shr(low, shift),
             hn::Shl(hn::ShiftLeft<1>(high), hn::Sub(hn::Set(d, 31), shift)));
  return hn::BitCast(di, hn::And(both, hn::Set(d, (1u << bits) - 1)));
}

// The columns below `end` of n kept blocks of a row from `first` on. Returns
// how many they are, or -1 where they are more than `most`.
HWY_INLINE int64_t ReadPacked(const sparse::PatternRow& row, int64_t first,
                              int64_t n, int64_t end, int64_t most,
                              uint16_t* columns) {
  const Words d;
  const hn::Rebind<uint16_t, Words> narrow;
  const int64_t lanes = LaneCount();
  const Pattern& pattern = row.pattern;
  const auto bits = static_cast<uint64_t>(pattern.column_bits);
  uint64_t bit =
      static_cast<uint64_t>(pattern.first + row.first + first) * bits;
  const auto limit = hn::Set(d, static_cast<int32_t>(end));
  for (int64_t i = 0; i < n; i += lanes, bit += bits * lanes) {
    const int64_t there = HWY_MIN(lanes, n - i);
    const auto v = PackedVector(pattern, bit, there);
    const auto below =
        hn::And(hn::Lt(v, limit), hn::FirstN(d, static_cast<size_t>(there)));
    const auto kept = static_cast<int64_t>(hn::CountTrue(d, below));
    if (i + kept > most) return -1;
    const auto small = hn::DemoteTo(narrow, v);
    if (kept == lanes) {
      hn::StoreU(small, narrow, columns + i);
      continue;
    }
    StoreFirst(small, narrow, columns + i, static_cast<size_t>(kept));
    return i + kept;
  }
  return n;
}

#endif  // 8 lanes

#if HWY_TARGET == HWY_AVX3

// The columns of bits, of which the first stands for `column`. Returns how many
// they are.
HWY_INLINE int64_t ReadBits(uint64_t bits, int64_t column, uint16_t* columns) {
  const Words d;
  const hn::Rebind<uint16_t, Words> narrow;
  int64_t n = 0;
  for (; bits != 0; bits >>= 16, column += 16) {
    uint8_t some[8];
    std::memcpy(some, &bits, sizeof(some));
    const auto kept = hn::LoadMaskBits(d, some);
    const size_t count = hn::CountTrue(d, kept);
    const auto all = CountFrom(column);
    StoreFirst(hn::DemoteTo(narrow, hn::Compress(all, kept)), narrow,
               columns + n, count);
    n += static_cast<int64_t>(count);
  }
  return n;
}

// The columns in [begin, end), or -1 where they are more than `most`.
HWY_INLINE int64_t ReadBitmap(const sparse::PatternRow& row, int64_t begin,
                              int64_t end, int64_t most, uint16_t* columns) {
  int64_t n = 0;
  for (int64_t i = begin / 64; 64 * i < end; ++i) {
    uint64_t bits = row.Word(i);
    if (64 * i < begin) bits &= ~uint64_t{0} << (begin - 64 * i);
    if (64 * i + 64 > end) bits &= ~uint64_t{0} >> (64 * i + 64 - end);
    if (n + std::popcount(bits) > most) return -1;
    n += ReadBits(bits, 64 * i, columns + n);
  }
  return n;
}

// The columns of kept blocks [skip, skip + n).
HWY_INLINE void ReadBitmapBlocks(const sparse::PatternRow& row, int64_t skip,
                                 int64_t n, uint16_t* columns) {
  int64_t word = 0;
  for (; skip > 0; ++word) {
    const int64_t here = std::popcount(row.Word(word));
    if (here > skip) break;
    skip -= here;
  }
  for (; n > 0; ++word) {
    uint64_t bits = row.Word(word);
    for (; skip > 0; --skip) bits &= bits - 1;
    if (std::popcount(bits) > n) {
      uint64_t rest = bits;
      for (int64_t k = 0; k < n; ++k) rest &= rest - 1;
      bits ^= rest;
    }
    const int64_t read = ReadBits(bits, 64 * word, columns);
    columns += read;
    n -= read;
  }
}

#endif

// As PatternRow::ReadColumns.
HWY_INLINE int64_t ReadColumns(const sparse::PatternRow& row, int64_t skip,
                               int64_t begin, int64_t end, int64_t most,
                               uint16_t* columns) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  if (row.pattern.codec == IndexCodec::kPacked) {
    return ReadPacked(row, skip, row.count() - skip, end, most, columns);
  }
#endif
#if HWY_TARGET == HWY_AVX3
  return ReadBitmap(row, begin, end, most, columns);
#else
  return row.ReadColumns(skip, begin, end, most, columns);
#endif
}

// As PatternRow::ReadBlocks.
HWY_INLINE void ReadBlocks(const sparse::PatternRow& row, int64_t skip,
                           int64_t n, uint16_t* columns) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  if (row.pattern.codec == IndexCodec::kPacked) {
    ReadPacked(row, skip, n, row.pattern.matrix.columns, n, columns);
    return;
  }
#endif
#if HWY_TARGET == HWY_AVX3
  ReadBitmapBlocks(row, skip, n, columns);
#else
  row.ReadBlocks(skip, n, columns);
#endif
}

// Sorts the entries of a row of single weights by their slots, of which there
// are few. Columns are those of one chunk; `first` is the chunk's first one.
class SlotSorter {
 public:
  // `columns`: where those of a chunk belong. Of a channel, they are what
  // `taps` says; channels are `step` floats apart.
  SlotSorter(const sparse::TapPlace* taps, int64_t tap_count, int64_t slots,
             int64_t step, const sparse::ColumnPlace* columns)
      : slots_(slots), columns_(columns) {
#if HWY_TARGET == HWY_AVX3
    splits_ = tap_count == 9 || tap_count == 1;
    nine_ = tap_count == 9;
    step_ = static_cast<int32_t>(step);
    for (int64_t t = 0; splits_ && t < tap_count; ++t) {
      tap_offsets_[t] = taps[t].offset;
      tap_slots_[t] = taps[t].slot;
    }
#else
    (void)taps, (void)tap_count, (void)step;
#endif
  }

  // Adds to counts[slot] how many of the columns it has.
  HWY_INLINE void Count(const uint16_t* HWY_RESTRICT columns, int64_t n,
                        int64_t first, int32_t* HWY_RESTRICT counts) const {
#if HWY_TARGET == HWY_AVX3
    if (splits_) {
      ForEachVector(columns, n, first, [&](int64_t, const Place& at) HWY_ATTR {
        for (int64_t slot = 0; slot < slots_; ++slot) {
          counts[slot] +=
              static_cast<int32_t>(hn::CountTrue(Words(), at.Of(slot)));
        }
      });
      return;
    }
#endif
    sparse::SlotRanks ranks;
    for (int64_t i = 0; i < n; ++i)
      ranks.Meet(columns_[columns[i] - first].run);
    for (int64_t slot = 0; slot < slots_; ++slot) {
      counts[slot] += ranks.count(slot);
    }
  }

  // Entries with these values; a slot's are written from starts[slot] on, which
  // moves to their end.
  HWY_INLINE void WriteEntries(const uint16_t* HWY_RESTRICT columns, int64_t n,
                               int64_t first, const float* HWY_RESTRICT values,
                               int32_t* HWY_RESTRICT starts,
                               sparse::Entry* HWY_RESTRICT entries) const {
#if HWY_TARGET == HWY_AVX3
    if (splits_) {
      WriteVectors(columns, n, first, values, starts, entries);
      return;
    }
#endif
    int32_t to[sparse::SlotRanks::kSlots] = {};
    for (int64_t slot = 0; slot < slots_; ++slot) to[slot] = starts[slot];
    sparse::SlotRanks ranks;
    for (int64_t i = 0; i < n; ++i) {
      const sparse::ColumnPlace place = columns_[columns[i] - first];
      entries[to[place.run] + ranks.Meet(place.run)] = {place.offset,
                                                        values[i]};
    }
    for (int64_t slot = 0; slot < slots_; ++slot) {
      starts[slot] += ranks.count(slot);
    }
  }

  // The same of their offsets, and which one of all it is: `number` on.
  HWY_INLINE void WriteOffsets(const uint16_t* HWY_RESTRICT columns, int64_t n,
                               int64_t first, int64_t number,
                               int32_t* HWY_RESTRICT starts,
                               int32_t* HWY_RESTRICT offsets,
                               int32_t* HWY_RESTRICT order) const {
#if HWY_TARGET == HWY_AVX3
    if (splits_) {
      const Words d;
      ForEachVector(
          columns, n, first, [&](int64_t i, const Place& at) HWY_ATTR {
            const auto all = CountFrom(number + i);
            for (int64_t slot = 0; slot < slots_; ++slot) {
              const auto of_slot = at.Of(slot);
              const size_t count = hn::CountTrue(d, of_slot);
              const int32_t to = starts[slot];
              StoreFirst(hn::Compress(at.offset, of_slot), d, offsets + to,
                         count);
              StoreFirst(hn::Compress(all, of_slot), d, order + to, count);
              starts[slot] = to + static_cast<int32_t>(count);
            }
          });
      return;
    }
#endif
    int32_t to[sparse::SlotRanks::kSlots] = {};
    for (int64_t slot = 0; slot < slots_; ++slot) to[slot] = starts[slot];
    sparse::SlotRanks ranks;
    for (int64_t i = 0; i < n; ++i) {
      const sparse::ColumnPlace place = columns_[columns[i] - first];
      const int64_t at = to[place.run] + ranks.Meet(place.run);
      offsets[at] = place.offset;
      order[at] = static_cast<int32_t>(number + i);
    }
    for (int64_t slot = 0; slot < slots_; ++slot) {
      starts[slot] += ranks.count(slot);
    }
  }

 private:
#if HWY_TARGET == HWY_AVX3
  struct Place {
    hn::Vec<Words> offset, slot;
    hn::Mask<Words> there;

    HWY_INLINE hn::Mask<Words> Of(int64_t number) const {
      const auto is = hn::Set(Words(), static_cast<int32_t>(number));
      return hn::And(there, hn::Eq(slot, is));
    }
  };

  // Of columns from the chunk's first one on. A column is divided by nine as a
  // product, which is exact below 2^16.
  HWY_INLINE Place PlaceOf(hn::Vec<Words> column, int64_t n) const {
    const Words d;
    const hn::RebindToUnsigned<D> du;
    auto channel = column;
    auto tap = hn::Zero(d);
    if (nine_) {
      const auto product = hn::Mul(hn::BitCast(du, column), hn::Set(du, 58255));
      channel = hn::BitCast(d, hn::ShiftRight<19>(product));
      tap = hn::Sub(column, hn::Add(hn::ShiftLeft<3>(channel), channel));
    }
    const auto index = hn::IndicesFromVec(d, tap);
    return {hn::Add(hn::Mul(channel, hn::Set(d, step_)),
                    hn::TableLookupLanes(hn::Load(d, tap_offsets_), index)),
            hn::TableLookupLanes(hn::Load(d, tap_slots_), index),
            hn::FirstN(d, static_cast<size_t>(n))};
  }

  // f(the first column's number, places of up to a vector of them).
  template <typename F>
  HWY_INLINE void ForEachVector(const uint16_t* columns, int64_t n,
                                int64_t first, const F& f) const {
    const Words d;
    const hn::Rebind<uint16_t, Words> narrow;
    const int64_t lanes = LaneCount();
    const auto base = hn::Set(d, static_cast<int32_t>(first));
    int64_t i = 0;
    for (; i + lanes <= n; i += lanes) {
      const auto column = hn::PromoteTo(d, hn::LoadU(narrow, columns + i));
      f(i, PlaceOf(hn::Sub(column, base), lanes));
    }
    if (i == n) return;
    const auto column = hn::PromoteTo(
        d, LoadFirst(narrow, columns + i, static_cast<size_t>(n - i)));
    f(i, PlaceOf(hn::Sub(column, base), n - i));
  }

  void WriteVectors(const uint16_t* columns, int64_t n, int64_t first,
                    const float* values, int32_t* starts,
                    sparse::Entry* entries) const {
    const Words d;
    const size_t half = hn::MaxLanes(d) / 2;
    // Interleaved, the lower halves of blocks are entries 0 to 7, the upper
    // ones 8 to 15.
    alignas(64) static constexpr int32_t kMixed[16] = {
        0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15};
    const auto mixed = hn::SetTableIndices(d, kMixed);
    ForEachVector(columns, n, first, [&](int64_t i, const Place& at) HWY_ATTR {
      const auto there = static_cast<size_t>(HWY_MIN(LaneCount(), n - i));
      const auto value = hn::BitCast(d, LoadFirst(D(), values + i, there));
      for (int64_t slot = 0; slot < slots_; ++slot) {
        const auto of_slot = at.Of(slot);
        const size_t count = hn::CountTrue(d, of_slot);
        const auto o =
            hn::TableLookupLanes(hn::Compress(at.offset, of_slot), mixed);
        const auto v =
            hn::TableLookupLanes(hn::Compress(value, of_slot), mixed);
        auto* const to = reinterpret_cast<int32_t*>(entries + starts[slot]);
        const size_t low = HWY_MIN(count, half);
        StoreFirst(hn::InterleaveLower(d, o, v), d, to, 2 * low);
        StoreFirst(hn::InterleaveUpper(d, o, v), d, to + 2 * half,
                   2 * (count - low));
        starts[slot] += static_cast<int32_t>(count);
      }
    });
  }

  bool splits_ = false;  // taps are as many as PlaceOf knows
  bool nine_ = false;
  int32_t step_ = 0;
  alignas(64) int32_t tap_offsets_[16] = {};
  alignas(64) int32_t tap_slots_[16] = {};
#endif

  const int64_t slots_;
  const sparse::ColumnPlace* const columns_;
};

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
