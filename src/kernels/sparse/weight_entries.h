// SPDX-License-Identifier: Apache-2.0
//
// Of the gradient of sparse weights: the entries whose sums a thread has in
// scratch at a time. Pure functions of the shape. Internal to the kernels.
//
// Kept blocks are taken in parts whose values are whole blocks of a tensor, as
// they lie in the pool, so that they may be handed over in pieces. In scratch,
// entries are in order of chunks of channels, rows, slots (as in entries.h),
// and `order` tells of each sum which value it is.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "kernels/sparse/entries.h"
#include "kernels/tensor.h"

namespace thimble::kernels::sparse {

inline constexpr int64_t kWeightEntries = 5120;

struct WeightPlan {
  Sides sides;        // of the forward pass
  int64_t chunk = 0;  // channels of a tile, whole blocks
  int64_t slots = 1;
  int64_t side = 1;  // as EntryPlan has it: a quad has one offset, four sums
  int64_t channel_floats = 0;

  int64_t chunks() const { return conv::CeilDiv(sides.channels, chunk); }
  int64_t block_values() const { return sides.block_values(); }
  // Kept blocks whose values are whole blocks of a tensor.
  int64_t granule() const {
    return std::lcm(ConstTensor::kBlock, block_values()) / block_values();
  }
  // Kept blocks at a time, of at most so many rows of the weight's blocks.
  int64_t most_blocks() const {
    const int64_t fit = kWeightEntries / block_values() / granule();
    return std::max<int64_t>(1, fit) * granule();
  }
  int64_t most_rows() const {
    return std::max(granule(), kRuns / (chunks() * slots * sides.row_unit));
  }
  int64_t capacity() const { return most_blocks() * block_values(); }
  int64_t runs() const {
    return most_rows() * sides.row_unit * chunks() * slots;
  }

  // Of a chunk of the weight's blocks.
  int64_t columns() const { return sides.taps * (chunk / sides.channel_unit); }

  // A thread's scratch, in floats: offsets, sums and order of entries, where
  // runs begin, places of taps and columns, rows of the weight.
  int64_t entry_floats() const {
    return conv::RoundUp(capacity() + 4, conv::kMostLanes);
  }
  int64_t run_floats() const {
    return conv::RoundUp(runs() + 2, conv::kMostLanes);
  }
  int64_t place_floats() const {
    return conv::RoundUp(2 * (sides.taps + columns()), conv::kMostLanes);
  }
  int64_t row_floats() const {
    return conv::RoundUp(2 * most_rows(), conv::kMostLanes);
  }
  int64_t Floats() const {
    return 3 * entry_floats() + run_floats() + place_floats() + row_floats();
  }
  int64_t staged_floats() const {
    return conv::RoundUp(most_blocks() / 2 + 1, conv::kMostLanes);
  }
};

// Channels of a tile of `floats`, in chunks of about the same size.
inline int64_t WeightChunkOf(const WeightPlan& plan, int64_t floats) {
  const int64_t unit = plan.sides.channel_unit;
  const int64_t fit = std::max<int64_t>(1, floats / plan.channel_floats / unit);
  const int64_t units = plan.sides.channels / unit;
  return conv::CeilDiv(units, conv::CeilDiv(units, fit)) * unit;
}

// A row of the weight's blocks, and how many of them are taken.
struct WeightRow {
  int32_t row;
  int32_t blocks;
};

// The scratch of a thread's entries.
struct WeightWork {
  int32_t* offsets = nullptr;
  float* sums = nullptr;
  int32_t* order = nullptr;
  int32_t* starts = nullptr;
  TapPlace* places = nullptr;
  ColumnPlace* columns = nullptr;
  WeightRow* rows = nullptr;
  uint16_t* staged = nullptr;

  WeightWork() = default;
  WeightWork(const WeightPlan& plan, float* scratch, float* stage)
      : offsets(reinterpret_cast<int32_t*>(scratch)),
        sums(scratch + plan.entry_floats()),
        order(offsets + 2 * plan.entry_floats()),
        starts(order + plan.entry_floats()),
        places(reinterpret_cast<TapPlace*>(starts + plan.run_floats())),
        columns(reinterpret_cast<ColumnPlace*>(places + plan.sides.taps)),
        rows(reinterpret_cast<WeightRow*>(starts + plan.run_floats() +
                                          plan.place_floats())),
        staged(reinterpret_cast<uint16_t*>(stage)) {}
};

}  // namespace thimble::kernels::sparse
