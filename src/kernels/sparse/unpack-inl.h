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
        by_taps_(plan.sides.taps) {}

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
    return work_.starts + (at * span.rows + row) * plan_.slots;
  }
  // Entries [first, last) of a row and slot.
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
      const int64_t n =
          row.ReadColumns(work_.before[w], first_column, last_column, room, to);
      if (n < 0) return false;
      work_.taken[w] = static_cast<uint16_t>(n);
      room -= n;
      to += n;
    }
    return true;
  }

  void Build(const sparse::RowSpan& span, int64_t first_chunk,
             int64_t last_chunk) {
    const int64_t runs = (last_chunk - first_chunk) * span.rows * plan_.slots;
    for (int64_t i = 0; i < runs + 2; ++i) work_.starts[i] = 0;
    const auto build = [&](auto forward, auto single) HWY_ATTR {
      constexpr bool kForward = decltype(forward)::value;
      constexpr bool kSingle = decltype(single)::value;
      Count<kForward, kSingle>(span, first_chunk);
      // Run k begins where the one before it ends; starts[k + 1] moves on from
      // there to its end while entries are written.
      for (int64_t i = 1; i < runs + 2; ++i) {
        work_.starts[i] += work_.starts[i - 1];
      }
      Write<kForward, kSingle>(span, first_chunk);
    };
    const bool single = block_values_ == 1;
    if (sides_.forward) {
      single ? build(std::true_type(), std::true_type())
             : build(std::true_type(), std::false_type());
    } else {
      single ? build(std::false_type(), std::true_type())
             : build(std::false_type(), std::false_type());
    }
  }

  // Calls f(weight row, block of the row that is taken, run of its first row
  // and channel, that channel's place in the chunk, tap) for all that is
  // staged.
  template <bool kForward, typename F>
  HWY_INLINE void ForEachBlock(const sparse::RowSpan& span, int64_t first_chunk,
                               const F& f) {
    const uint16_t* staged = work_.staged;
    const int64_t chunk_units = plan_.chunk / sides_.channel_unit;
    const int64_t chunk_runs = span.rows * plan_.slots;
    const int64_t unit_runs = sides_.row_unit * plan_.slots;
    const int64_t first_row = span.first / sides_.row_unit;
    for (int64_t w = first_weight_row_; w < last_weight_row_; ++w) {
      int64_t base = 0, chunk_begin = first_chunk * chunk_units, local = 0;
      if constexpr (kForward) {
        base = (w - first_row) * unit_runs;
      } else {
        base = (w / chunk_units - first_chunk) * chunk_runs;
        local = w % chunk_units;
      }
      const int64_t n = work_.taken[w];
      for (int64_t i = 0; i < n; ++i) {
        const int64_t column = staged[i];
        const int64_t unit = by_taps_(column);
        const int64_t tap = column - unit * sides_.taps;
        if constexpr (kForward) {
          while (unit >= chunk_begin + chunk_units) {  // columns ascend
            chunk_begin += chunk_units;
            base += chunk_runs;
          }
          f(w, i, base, unit - chunk_begin, tap);
        } else {
          f(w, i, base + (unit - first_row) * unit_runs, local, tap);
        }
      }
      staged += n;
    }
  }

  template <bool kForward, bool kSingle>
  void Count(const sparse::RowSpan& span, int64_t first_chunk) {
    ForEachBlock<kForward>(
        span, first_chunk,
        [&](int64_t, int64_t, int64_t run, int64_t, int64_t tap) HWY_ATTR {
          int32_t* count = work_.starts + run + work_.places[tap].slot + 2;
          if constexpr (kSingle) {
            ++*count;
            return;
          }
          for (int64_t r = 0; r < sides_.row_unit; ++r) {
            count[r * plan_.slots] += static_cast<int32_t>(sides_.channel_unit);
          }
        });
  }

  template <bool kForward, bool kSingle>
  void Write(const sparse::RowSpan& span, int64_t first_chunk) {
    const float* values = nullptr;
    const int64_t channel_step = kForward ? 1 : pattern_.block.inputs;
    const int64_t row_step = kForward ? pattern_.block.inputs : 1;
    const int64_t line_blocks = plan_.value_floats() / block_values_;
    const bool in_place = values_.dtype() == DType::kF32;
    ForEachBlock<kForward>(
        span, first_chunk,
        [&](int64_t w, int64_t i, int64_t run, int64_t local,
            int64_t tap) HWY_ATTR {
          if (i % line_blocks == 0 && !in_place) {
            const int64_t n = HWY_MIN(line_blocks, int64_t{work_.taken[w]} - i);
            values = ReadPiece(values_, ValueOf(w, i), n * block_values_,
                               work_.values);
          } else if (i == 0) {
            values = values_.f32() + ValueOf(w, 0);
          }
          const float* value =
              values + (in_place ? i : i % line_blocks) * block_values_;
          const sparse::TapPlace place = work_.places[tap];
          int32_t* start = work_.starts + run + place.slot + 1;
          const auto offset = static_cast<int32_t>(local * sides_.channel_unit *
                                                       plan_.channel_floats +
                                                   place.offset);
          if constexpr (kSingle) {
            work_.entries[(*start)++] = {offset, *value};
            return;
          }
          for (int64_t r = 0; r < sides_.row_unit; ++r) {
            int32_t& to = start[r * plan_.slots];
            for (int64_t c = 0; c < sides_.channel_unit; ++c) {
              work_.entries[to++] = {
                  offset + static_cast<int32_t>(c * plan_.channel_floats),
                  value[r * row_step + c * channel_step]};
            }
          }
        });
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
  const sparse::Divider by_taps_;
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
