// SPDX-License-Identifier: Apache-2.0
//
// The gradient of sparse weights over a batch: who works on what, and where the
// sums go. Included once per SIMD target, after <hwy/highway.h>; hence no
// `#pragma once`.
#if defined(THIMBLE_KERNELS_SPARSE_WEIGHT_ROWS_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef THIMBLE_KERNELS_SPARSE_WEIGHT_ROWS_INL_H_
#undef THIMBLE_KERNELS_SPARSE_WEIGHT_ROWS_INL_H_
#else
#define THIMBLE_KERNELS_SPARSE_WEIGHT_ROWS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "kernels/conv/conv.h"
#include "kernels/elements-inl.h"
#include "kernels/lane_sums-inl.h"
#include "kernels/sparse/calls.h"
#include "kernels/sparse/columns-inl.h"
#include "kernels/sparse/index.h"
#include "kernels/sparse/weight_entries.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

// The sums of some kept blocks at a time.
class WeightEntries {
 public:
  WeightEntries(const sparse::WeightPlan& plan, const Pattern& pattern,
                const sparse::WeightWork& work)
      : plan_(plan),
        pattern_(pattern),
        work_(work),
        run_rows_(plan.sides.row_unit / plan.side),
        run_entries_(plan.sides.channel_unit / plan.side),
        ranks_(plan.block_values() == 1 &&
               plan.slots <= sparse::SlotRanks::kSlots),
        sorter_(work.places, plan.sides.taps, plan.slots, plan.channel_floats,
                work.columns) {
    ListColumns();
  }

  // Takes the blocks from `first` on, before `end`: zeros are their sums.
  // Returns how many they are.
  int64_t Take(int64_t first, int64_t end) {
    rows_ = 0;
    const int64_t blocks = Stage(first, end);
    const int64_t runs = plan_.chunks() * rows_ * run_rows_ * plan_.slots;
    for (int64_t i = 0; i < runs + 2; ++i) work_.starts[i] = 0;
    Count();
    for (int64_t i = 1; i < runs + 2; ++i) {
      work_.starts[i] += work_.starts[i - 1];
    }
    Write();
    for (int64_t i = 0; i < blocks * plan_.block_values(); ++i) {
      work_.sums[i] = 0.0f;
    }
    return blocks;
  }

  // Rows of the weight of which there are entries.
  int64_t rows() const { return rows_ * plan_.sides.row_unit; }
  int64_t OutputOf(int64_t row) const {
    const int64_t unit = plan_.sides.row_unit;
    return work_.rows[row / unit].row * unit + row % unit;
  }

  // Entries [first, last) of a row and slot, or of a pair of rows: quads, of
  // which each has one offset and four sums.
  struct Run {
    int64_t first;
    int64_t last;
  };
  Run RunOf(int64_t chunk, int64_t row, int64_t slot) const {
    const int32_t* start =
        work_.starts + (chunk * rows() + row) / plan_.side * plan_.slots + slot;
    return {start[0], start[1]};
  }
  const int32_t* offsets() const { return work_.offsets; }
  float* sums() const { return work_.sums; }

  // The sums in the order of their values, where offsets were: those are no
  // longer there.
  float* Values(int64_t n) const {
    float* const values = reinterpret_cast<float*>(work_.offsets);
    for (int64_t i = 0; i < n; ++i) values[work_.order[i]] = work_.sums[i];
    return values;
  }

 private:
  // As many as there is room for.
  int64_t Stage(int64_t first, int64_t end) {
    if (first < first_) row_ = first_ = 0;
    const int64_t room = HWY_MIN(end - first, plan_.most_blocks());
    const int64_t most_rows = plan_.most_rows();
    int64_t staged = 0;
    while (staged < room && rows_ < most_rows) {
      const int64_t skip = first + staged - first_;
      const int64_t n = HWY_MIN(pattern_.counts[row_] - skip, room - staged);
      if (n > 0) {
        ReadBlocks({pattern_, row_, first_}, skip, n, work_.staged + staged);
        work_.rows[rows_++] = {static_cast<int32_t>(row_),
                               static_cast<int32_t>(n)};
        staged += n;
      }
      if (skip + n == pattern_.counts[row_]) first_ += pattern_.counts[row_++];
    }
    if (first + staged == end) return staged;
    return Forget(staged, staged / plan_.granule() * plan_.granule());
  }

  // Keeps `kept` of the staged blocks.
  int64_t Forget(int64_t staged, int64_t kept) {
    for (int64_t more = staged - kept; more > 0;) {
      sparse::WeightRow& last = work_.rows[rows_ - 1];
      const auto n = static_cast<int32_t>(HWY_MIN(more, int64_t{last.blocks}));
      last.blocks -= n;
      more -= n;
      if (last.blocks == 0) --rows_;
    }
    return kept;
  }

  // Of the columns of a chunk, where their entries belong.
  void ListColumns() {
    const sparse::Sides& sides = plan_.sides;
    const int64_t step = sides.channel_unit * plan_.channel_floats;
    sparse::ColumnPlace* to = work_.columns;
    for (int64_t unit = 0; unit < plan_.chunk / sides.channel_unit; ++unit) {
      for (int64_t tap = 0; tap < sides.taps; ++tap) {
        const sparse::TapPlace place = work_.places[tap];
        *to++ = {place.slot, static_cast<int32_t>(unit * step) + place.offset};
      }
    }
  }

  // Calls f(columns, n, the one whose place is the first, what is added to
  // their runs), in the order of blocks, for those of a row in one chunk.
  template <typename F>
  HWY_INLINE void ForEachSegment(const F& f) {
    const int64_t chunk_columns = plan_.columns();
    const uint16_t* columns = work_.staged;
    for (int64_t i = 0; i < rows_; ++i) {
      const uint16_t* const last = columns + work_.rows[i].blocks;
      int64_t run = i * run_rows_ * plan_.slots;
      for (int64_t first = 0; columns != last; first += chunk_columns) {
        const int64_t n = sparse::ColumnsBefore(columns, last - columns,
                                                first + chunk_columns);
        f(columns, n, first, run);
        columns += n;
        run += rows_ * run_rows_ * plan_.slots;
      }
    }
  }

  void Count() {
    const sparse::ColumnPlace* const places = work_.columns;
    ForEachSegment([&](const uint16_t* HWY_RESTRICT columns, int64_t n,
                       int64_t first, int64_t run) HWY_ATTR {
      int32_t* HWY_RESTRICT counts = work_.starts + run + 2;
      if (ranks_) {
        sorter_.Count(columns, n, first, counts);
        return;
      }
      const auto each = static_cast<int32_t>(run_entries_);
      for (int64_t i = 0; i < n; ++i) {
        int32_t* count = counts + places[columns[i] - first].run;
        for (int64_t r = 0; r < run_rows_; ++r) {
          count[r * plan_.slots] += each;
        }
      }
    });
  }

  void Write() {
    int64_t number = 0;  // of values
    ForEachSegment([&](const uint16_t* columns, int64_t n, int64_t first,
                       int64_t run) HWY_ATTR {
      if (ranks_) {
        sorter_.WriteOffsets(columns, n, first, number, work_.starts + run + 1,
                             work_.offsets, work_.order);
      } else if (plan_.side == 2) {
        WriteQuads(columns, n, first, run, number);
      } else {
        WriteBlocks(columns, n, first, run, number);
      }
      number += n * plan_.block_values();
    });
  }

  void WriteBlocks(const uint16_t* columns, int64_t n, int64_t first,
                   int64_t run, int64_t number) const {
    const sparse::Sides& sides = plan_.sides;
    const auto step = static_cast<int32_t>(plan_.channel_floats);
    auto value = static_cast<int32_t>(number);
    for (int64_t i = 0; i < n; ++i) {
      const sparse::ColumnPlace place = work_.columns[columns[i] - first];
      for (int64_t r = 0; r < sides.row_unit; ++r) {
        int32_t& to = work_.starts[run + 1 + place.run + r * plan_.slots];
        int32_t offset = place.offset;
        for (int64_t c = 0; c < sides.channel_unit; ++c, offset += step) {
          work_.offsets[to] = offset;
          work_.order[to++] = value++;
        }
      }
    }
  }

  void WriteQuads(const uint16_t* columns, int64_t n, int64_t first,
                  int64_t run, int64_t number) const {
    const auto inputs = static_cast<int32_t>(plan_.sides.channel_unit);
    const auto step = static_cast<int32_t>(2 * plan_.channel_floats);
    auto value = static_cast<int32_t>(number);
    for (int64_t i = 0; i < n; ++i) {
      const sparse::ColumnPlace place = work_.columns[columns[i] - first];
      for (int64_t r = 0; r < run_rows_; ++r, value += inputs) {
        int32_t& to = work_.starts[run + 1 + place.run + r * plan_.slots];
        int32_t offset = place.offset;
        for (int64_t c = 0; c < run_entries_; ++c, value += 2) {
          int32_t* const order = work_.order + 4 * to;
          order[0] = value;
          order[1] = value + 1;
          order[2] = value + inputs;
          order[3] = value + inputs + 1;
          work_.offsets[to++] = offset;
          offset += step;
        }
      }
    }
  }

  const sparse::WeightPlan& plan_;
  const Pattern& pattern_;
  const sparse::WeightWork work_;
  // Of a block: rows of runs, and entries that it adds to each.
  const int64_t run_rows_, run_entries_;
  const bool ranks_;  // the slots of a row are few enough for the sorter
  const SlotSorter sorter_;
  int64_t rows_ = 0;   // of blocks, of which some are taken
  int64_t row_ = 0;    // of the pattern
  int64_t first_ = 0;  // its first kept block
};

// n sums to the gradient's values from `first` on.
void StoreValues(const sparse::ValueTarget& target, int64_t first, int64_t n,
                 float* sums) {
  if (target.pieces != nullptr) {
    target.pieces->Take(first, n, sums);
    return;
  }
  WithFloatType(target.to.dtype(), [&](auto type) HWY_ATTR {
    using T = decltype(type);
    if (target.addend.is_there()) {
      MapRow(n, target.addend.As<T>() + first, sums,
             [](V v, V there) HWY_ATTR { return hn::Add(there, v); });
    }
    CopyRowAs(n, sums, target.to.As<T>() + first,
              [](V v) HWY_ATTR { return v; });
  });
}

// All images for the blocks that were taken. What a Way is: see SumWeights.
template <class Way>
void SumTaken(const sparse::WeightCall& call, Way& way,
              const WeightEntries& entries) {
  for (int64_t image = 0; image < call.images; image += way.step()) {
    const int64_t images = HWY_MIN(way.step(), call.images - image);
    for (int64_t tile = 0; tile < way.tiles(); ++tile) {
      for (int64_t chunk = 0; chunk < way.plan().chunks(); ++chunk) {
        way.Load(image, images, tile, chunk);
        for (int64_t row = 0; row < entries.rows(); row += way.plan().side) {
          way.SumRow(entries, chunk, row);
        }
      }
    }
  }
}

// Blocks [first, last) of those that are kept.
template <class Way>
void SumRange(const sparse::WeightCall& call, Way& way, int64_t first,
              int64_t last) {
  const int64_t values = way.plan().block_values();
  WeightEntries entries(way.plan(), call.pattern, way.work());
  while (first < last) {
    const int64_t blocks = entries.Take(first, last);
    SumTaken(call, way, entries);
    StoreValues(call.target, first * values, blocks * values,
                entries.Values(blocks * values));
    first += blocks;
  }
}

// Threads share what is kept. A Way has a plan() and a thread's scratch:
// work(), images that it takes at once: step(), and tiles() of them. Load
// brings a chunk of a tile into scratch, SumRow adds what it gives to the sums
// of a row's entries, or of a pair's.
template <class Way, class Pass, class Call>
void SumWeights(const Pass& pass, const Call& call,
                const KernelContext& context) {
  const int64_t kept = call.pattern.kept;
  const int64_t granule = pass.plan.granule();
  context.pool->ParallelFor(
      conv::CeilDiv(kept, granule),
      [&](int64_t begin, int64_t end, int thread) {
        Way way(pass, call, context.PerThread<float>(thread));
        SumRange(call, way, begin * granule, HWY_MIN(kept, end * granule));
      });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
