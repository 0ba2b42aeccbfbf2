// SPDX-License-Identifier: Apache-2.0
//
// Sparse weights into entries (entries.h): those of some rows of a sum, in the
// order in which they are summed up. Included once per SIMD target, after
// <hwy/highway.h>; hence no `#pragma once`.
#if defined(THIMBLE_KERNELS_SPARSE_UNPACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef THIMBLE_KERNELS_SPARSE_UNPACK_INL_H_
#undef THIMBLE_KERNELS_SPARSE_UNPACK_INL_H_
#else
#define THIMBLE_KERNELS_SPARSE_UNPACK_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "kernels/sparse/columns-inl.h"
#include "kernels/sparse/entries.h"
#include "kernels/sparse/index.h"
#include "kernels/stage-inl.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

class Unpacker {
 public:
  Unpacker(const sparse::EntryPlan& plan, const Pattern& pattern,
           const ConstTensor& values, const sparse::EntryWork& work)
      : plan_(plan),
        sides_(plan.sides),
        pattern_(pattern),
        values_(values),
        work_(work),
        block_values_(pattern.block.values()),
        run_rows_(plan.sides.row_unit / plan.side),
        run_entries_(plan.sides.channel_unit / plan.side),
        ranks_(sides_.forward && block_values_ == 1 &&
               plan.slots <= sparse::SlotRanks::kSlots),
        sorter_(work.places, plan.sides.taps, plan.slots, plan.channel_floats,
                work.columns) {
    ListColumns();
  }

  // Rows are taken from `row` on. Rows of the gradient of the input are columns
  // of the weight: where they begin in its rows is kept.
  void Begin(int64_t row) {
    if (sides_.forward) return;
    for (int64_t w = 0; w < sides_.weight_rows; ++w) {
      work_.before[w] = static_cast<uint16_t>(
          RowAt(w).CountBelow(row / sides_.row_unit * sides_.taps));
    }
  }

  // The next rows, before `end`: their entries are in scratch, unless not even
  // those of a block's rows fit in all at once.
  sparse::RowSpan Take(int64_t row, int64_t end) {
    const int64_t unit = sides_.row_unit;
    sparse::RowSpan span{row, RowsThatMayFit(row, end), true};
    for (; span.rows >= unit; span.rows = conv::RoundUp(span.rows / 2, unit)) {
      if (Stage(span, 0, sides_.channels)) {
        Build(span, 0, plan_.chunks());
        return span;
      }
      if (span.rows == unit) break;
    }
    return {row, unit, false};
  }

  // One chunk of rows that do not fit all at once.
  void TakeChunk(const sparse::RowSpan& span, int64_t chunk) {
    const int64_t begin = chunk * plan_.chunk;
    Stage(span, begin, HWY_MIN(sides_.channels, begin + plan_.chunk));
    Build(span, chunk, chunk + 1);
  }

  // Before the next Take.
  void Leave(const sparse::RowSpan& span) {
    if (sides_.forward) return;
    const int64_t end = (span.first + span.rows) / sides_.row_unit;
    for (int64_t w = 0; w < sides_.weight_rows; ++w) {
      // Of chunks, only the last one's rows are known.
      work_.before[w] = static_cast<uint16_t>(
          span.all_chunks ? work_.before[w] + work_.taken[w]
                          : RowAt(w).CountBelow(end * sides_.taps));
    }
  }

  // Where the runs of a row of the span begin, slot by slot.
  const int32_t* StartsOf(const sparse::RowSpan& span, int64_t chunk,
                          int64_t row) const {
    const int64_t at = span.all_chunks ? chunk : 0;
    return work_.starts + (at * span.rows + row) / plan_.side * plan_.slots;
  }
  // Entries [first, last) of a row and slot, where they are no quads.
  struct Run {
    const sparse::Entry* first;
    const sparse::Entry* last;
  };
  Run RunOf(const sparse::RowSpan& span, int64_t chunk, int64_t row,
            int64_t slot) const {
    const int32_t* start = StartsOf(span, chunk, row) + slot;
    return {work_.entries + start[0], work_.entries + start[1]};
  }

 private:
  // Row w of the weight, which is asked for in ascending order mostly.
  sparse::PatternRow RowAt(int64_t w) {
    if (w < row_) row_ = first_ = 0;
    for (; row_ < w; ++row_) first_ += pattern_.counts[row_];
    return {pattern_, w, first_};
  }

  int64_t RowsThatMayFit(int64_t row, int64_t end) {
    const int64_t unit = sides_.row_unit;
    const int64_t runs = plan_.chunks() * plan_.slots;
    const int64_t most = HWY_MIN(HWY_MIN(plan_.most_rows, end - row),
                                 plan_.runs() / runs / unit * unit);
    const int64_t blocks = plan_.capacity() / block_values_;
    if (sides_.forward) {
      int64_t kept = 0, n = 0;
      while (n + unit <= most) {
        kept += pattern_.counts[(row + n) / unit];
        if (kept > blocks) break;
        n += unit;
      }
      return n;
    }
    const int64_t all = sides_.rows / unit;
    const int64_t fit =
        pattern_.kept == 0 ? all : blocks * all * 15 / (16 * pattern_.kept);
    return HWY_MIN(most, HWY_MAX(fit, int64_t{1}) * unit);
  }

  // Columns of the span's rows and channels [begin, end) to `staged`; false if
  // there is no room for their entries.
  bool Stage(const sparse::RowSpan& span, int64_t begin, int64_t end) {
    const int64_t first_unit = begin / sides_.channel_unit;
    const int64_t last_unit = end / sides_.channel_unit;
    const int64_t first_row = span.first / sides_.row_unit;
    const int64_t last_row = (span.first + span.rows) / sides_.row_unit;
    const int64_t taps = sides_.taps;
    first_weight_row_ = sides_.forward ? first_row : first_unit;
    last_weight_row_ = sides_.forward ? last_row : last_unit;
    const int64_t first_column =
        (sides_.forward ? first_unit : first_row) * taps;
    const int64_t last_column = (sides_.forward ? last_unit : last_row) * taps;
    int64_t room = plan_.capacity() / block_values_;
    uint16_t* to = work_.staged;
    for (int64_t w = first_weight_row_; w < last_weight_row_; ++w) {
      const sparse::PatternRow row = RowAt(w);
      if (sides_.forward) {
        work_.before[w] = static_cast<uint16_t>(row.CountBelow(first_column));
      }
      const int64_t n = ReadColumns(row, work_.before[w], first_column,
                                    last_column, room, to);
      if (n < 0) return false;
      work_.taken[w] = static_cast<uint16_t>(n);
      room -= n;
      to += n;
    }
    return true;
  }

  void Build(const sparse::RowSpan& span, int64_t first_chunk,
             int64_t last_chunk) {
    const int64_t runs =
        (last_chunk - first_chunk) * span.rows / plan_.side * plan_.slots;
    for (int64_t i = 0; i < runs + 2; ++i) work_.starts[i] = 0;
    Count(span, first_chunk);
    // Run k begins where the one before it ends; starts[k + 1] moves on from
    // there to its end while entries are written.
    for (int64_t i = 1; i < runs + 2; ++i) {
      work_.starts[i] += work_.starts[i - 1];
    }
    Write(span, first_chunk);
  }

  // Kept blocks of a row of the weight whose entries are in one chunk.
  struct Segment {
    int64_t row;    // of the weight's blocks
    int64_t first;  // of those that are taken
    int64_t count;
    const uint16_t* columns;
    int64_t first_column;  // that of which the place is places[0]
    int64_t run;           // added to the place's run
    int64_t offset;        // and to its offset
  };
  template <typename F>
  HWY_INLINE void ForEachSegment(const sparse::RowSpan& span,
                                 int64_t first_chunk, const F& f) {
    const int64_t chunk_units = plan_.chunk / sides_.channel_unit;
    const int64_t chunk_columns = chunk_units * sides_.taps;
    const int64_t chunk_runs = span.rows / plan_.side * plan_.slots;
    const int64_t first_row = span.first / sides_.row_unit;
    Segment at{};
    at.columns = work_.staged;
    for (int64_t w = first_weight_row_; w < last_weight_row_; ++w) {
      const int64_t n = work_.taken[w];
      at.row = w;
      at.first = 0;
      if (!sides_.forward) {
        at.count = n;
        at.first_column = first_row * sides_.taps;
        at.run = (w / chunk_units - first_chunk) * chunk_runs;
        at.offset =
            w % chunk_units * sides_.channel_unit * plan_.channel_floats;
        f(at);
        at.columns += n;
        continue;
      }
      at.first_column = first_chunk * chunk_columns;
      at.run = (w - first_row) * run_rows_ * plan_.slots;
      while (at.first < n) {  // columns ascend
        const int64_t end = at.first_column + chunk_columns;
        at.count = sparse::ColumnsBefore(at.columns, n - at.first, end);
        f(at);
        at.first += at.count;
        at.columns += at.count;
        at.first_column = end;
        at.run += chunk_runs;
      }
    }
  }

  void Count(const sparse::RowSpan& span, int64_t first_chunk) {
    const sparse::ColumnPlace* const places = work_.columns;
    ForEachSegment(span, first_chunk, [&](const Segment& at) HWY_ATTR {
      const uint16_t* HWY_RESTRICT columns = at.columns;
      int32_t* HWY_RESTRICT counts = work_.starts + at.run + 2;
      if (ranks_) {
        sorter_.Count(columns, at.count, at.first_column, counts);
        return;
      }
      if (block_values_ == 1) {
        for (int64_t i = 0; i < at.count; ++i) {
          ++counts[places[columns[i] - at.first_column].run];
        }
        return;
      }
      const auto each = static_cast<int32_t>(run_entries_);
      for (int64_t i = 0; i < at.count; ++i) {
        int32_t* count = counts + places[columns[i] - at.first_column].run;
        for (int64_t r = 0; r < run_rows_; ++r) {
          count[r * plan_.slots] += each;
        }
      }
    });
  }

  void Write(const sparse::RowSpan& span, int64_t first_chunk) {
    const int64_t most = plan_.value_floats() / block_values_;
    ForEachSegment(span, first_chunk, [&](Segment at) HWY_ATTR {
      const int64_t end = at.first + at.count;
      while (at.first < end) {
        at.count = HWY_MIN(most, end - at.first);
        const float* values = ReadPiece(values_, ValueOf(at.row, at.first),
                                        at.count * block_values_, work_.values);
        if (ranks_) {
          sorter_.WriteEntries(at.columns, at.count, at.first_column, values,
                               work_.starts + at.run + 1, work_.entries);
        } else if (block_values_ == 1) {
          WriteValues(at, values);
        } else if (plan_.side == 2) {
          WriteQuads(at, values);
        } else {
          WriteBlocks(at, values);
        }
        at.first += at.count;
        at.columns += at.count;
      }
    });
  }

  void WriteValues(const Segment& at, const float* HWY_RESTRICT values) const {
    const sparse::ColumnPlace* HWY_RESTRICT places = work_.columns;
    const uint16_t* HWY_RESTRICT columns = at.columns;
    int32_t* HWY_RESTRICT starts = work_.starts + at.run + 1;
    sparse::Entry* HWY_RESTRICT entries = work_.entries;
    const auto offset = static_cast<int32_t>(at.offset);
    const int64_t first = at.first_column, n = at.count;
    for (int64_t i = 0; i < n; ++i) {
      const sparse::ColumnPlace place = places[columns[i] - first];
      const int32_t to = starts[place.run];
      starts[place.run] = to + 1;
      entries[to] = {offset + place.offset, values[i]};
    }
  }

  void WriteBlocks(const Segment& at, const float* value) const {
    const int64_t inputs = pattern_.block.inputs;
    const int64_t channel_step = sides_.forward ? 1 : inputs;
    const int64_t row_step = sides_.forward ? inputs : 1;
    int32_t* const starts = work_.starts + at.run + 1;
    for (int64_t i = 0; i < at.count; ++i, value += block_values_) {
      const sparse::ColumnPlace place =
          work_.columns[at.columns[i] - at.first_column];
      for (int64_t r = 0; r < sides_.row_unit; ++r) {
        int32_t to = starts[place.run + r * plan_.slots];
        int64_t offset = at.offset + place.offset;
        for (int64_t c = 0; c < sides_.channel_unit; ++c) {
          work_.entries[to++] = {static_cast<int32_t>(offset),
                                 value[r * row_step + c * channel_step]};
          offset += plan_.channel_floats;
        }
        starts[place.run + r * plan_.slots] = to;
      }
    }
  }

  void WriteQuads(const Segment& at, const float* value) const {
    const int64_t inputs = pattern_.block.inputs;
    const int64_t channel_step = sides_.forward ? 1 : inputs;
    const int64_t row_step = sides_.forward ? inputs : 1;
    int32_t* const starts = work_.starts + at.run + 1;
    for (int64_t i = 0; i < at.count; ++i, value += block_values_) {
      const sparse::ColumnPlace place =
          work_.columns[at.columns[i] - at.first_column];
      for (int64_t r = 0; r < run_rows_; ++r) {
        int32_t to = starts[place.run + r * plan_.slots];
        int64_t offset = at.offset + place.offset;
        for (int64_t c = 0; c < run_entries_; ++c) {
          const float* v = value + 2 * (r * row_step + c * channel_step);
          work_.quads[to++] = {
              static_cast<int32_t>(offset),
              {v[0], v[channel_step], v[row_step], v[row_step + channel_step]}};
          offset += 2 * plan_.channel_floats;
        }
        starts[place.run + r * plan_.slots] = to;
      }
    }
  }

  // Of the first columns of a chunk, or of a span, where their entries belong.
  void ListColumns() {
    const int64_t units = plan_.columns() / sides_.taps;
    const int64_t run_step = sides_.forward ? 0 : run_rows_ * plan_.slots;
    const int64_t step =
        sides_.forward ? sides_.channel_unit * plan_.channel_floats : 0;
    sparse::ColumnPlace* to = work_.columns;
    for (int64_t unit = 0; unit < units; ++unit) {
      for (int64_t tap = 0; tap < sides_.taps; ++tap) {
        const sparse::TapPlace place = work_.places[tap];
        *to++ = {static_cast<int32_t>(unit * run_step) + place.slot,
                 static_cast<int32_t>(unit * step) + place.offset};
      }
    }
  }

  // Of the values: the first one of block i that is taken of a row.
  int64_t ValueOf(int64_t w, int64_t i) {
    return (RowAt(w).first + work_.before[w] + i) * block_values_;
  }

  const sparse::EntryPlan& plan_;
  const sparse::Sides& sides_;
  const Pattern& pattern_;
  const ConstTensor values_;
  const sparse::EntryWork work_;
  const int64_t block_values_;
  // Of a block: rows of runs, and entries that it adds to each.
  const int64_t run_rows_, run_entries_;
  const bool ranks_;  // the slots of a row are few enough for the sorter
  const SlotSorter sorter_;
  // The rows of the weight that are staged.
  int64_t first_weight_row_ = 0;
  int64_t last_weight_row_ = 0;
  int64_t row_ = 0;  // of RowAt
  int64_t first_ = 0;
};

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
