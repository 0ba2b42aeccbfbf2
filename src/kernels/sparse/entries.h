// SPDX-License-Identifier: Apache-2.0
//
// What the kernels read of sparse weights: entries, each a place in a tile of
// x and a factor, which are unpacked from index and values for some rows at a
// time. Pure functions of the shape. Internal to the kernels.
//
// A sum's rows are what it makes, its channels what it sums over: outputs and
// inputs in the forward pass, the other way round in the gradient of the input.
// The tile holds a chunk of channels. Taps that are summed up together are a
// slot: entries are in order of chunks, rows, slots, then of columns.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/conv/conv.h"
#include "kernels/conv/tile.h"

namespace thimble::kernels::sparse {

struct Entry {
  int32_t offset;  // in the tile, in floats
  float weight;
};

// Where a tap reads, from the channel's first float on, and its slot.
struct TapPlace {
  int32_t offset;
  int32_t slot;
};

// Scratch is planned for so many entries at a time, runs of them with the same
// chunk, row and slot, and rows, if not a single row asks for more.
inline constexpr int64_t kEntries = 5120;
inline constexpr int64_t kRuns = 1536;
inline constexpr int64_t kRows = 64;

// The two sides of a weight as a sum sees them.
struct Sides {
  bool forward = true;
  int64_t taps = 1;
  int64_t rows = 0;
  int64_t channels = 0;
  int64_t row_unit = 1;  // rows of a block
  int64_t channel_unit = 1;
  int64_t weight_rows = 0;  // rows of blocks, as the pattern has them
};

inline Sides SidesOf(const Conv2dShape& s, bool forward) {
  const WeightBlock& block = *s.blocks;
  Sides sides;
  sides.forward = forward;
  sides.taps = s.kernel_h * s.kernel_w;
  sides.rows = forward ? s.out_channels : s.in_channels;
  sides.channels = forward ? s.in_channels : s.out_channels;
  sides.row_unit = forward ? block.outputs : block.inputs;
  sides.channel_unit = forward ? block.inputs : block.outputs;
  sides.weight_rows = s.out_channels / block.outputs;
  return sides;
}

struct EntryPlan {
  Sides sides;
  int64_t chunk = 0;  // channels of a tile, whole blocks
  int64_t slots = 1;
  int64_t channel_floats = 0;  // of the tile
  int64_t most_rows = 0;       // rows at a time, whole blocks

  int64_t chunks() const { return conv::CeilDiv(sides.channels, chunk); }
  int64_t capacity() const {
    return std::max(kEntries, sides.taps * sides.row_unit * sides.channel_unit);
  }
  // Of entries whose chunks are not unpacked all at once, too.
  int64_t runs() const { return std::max(kRuns, sides.row_unit * slots); }

  // A thread's scratch, in floats: entries, where runs begin, places of taps,
  // two numbers for each row of the weight, a few blocks' values.
  int64_t entry_floats() const {
    return conv::RoundUp(2 * capacity(), conv::kMostLanes);
  }
  int64_t run_floats() const {
    return conv::RoundUp(runs() + 2, conv::kMostLanes);
  }
  int64_t place_floats() const {
    return conv::RoundUp(2 * sides.taps, conv::kMostLanes);
  }
  int64_t row_floats() const {
    return conv::RoundUp(sides.weight_rows, conv::kMostLanes);
  }
  int64_t value_floats() const {
    return std::max<int64_t>(
        256,
        conv::RoundUp(sides.row_unit * sides.channel_unit, conv::kMostLanes));
  }
  int64_t Floats() const {
    return entry_floats() + run_floats() + place_floats() + row_floats() +
           value_floats();
  }
  // Columns are staged where the tile will lie.
  int64_t staged_floats() const {
    return conv::RoundUp(capacity() / 2 + 1, conv::kMostLanes);
  }
};

// Channels of a tile: as many as fit into `floats`, in chunks of about the same
// size, of which any has no more entries in a block's rows than there is room
// for.
inline int64_t ChunkOf(const EntryPlan& plan, int64_t floats) {
  const Sides& s = plan.sides;
  const int64_t fit = std::min(floats / plan.channel_floats,
                               plan.capacity() / (s.taps * s.row_unit));
  const int64_t most = std::max<int64_t>(1, fit / s.channel_unit);
  const int64_t units = s.channels / s.channel_unit;
  return conv::CeilDiv(units, conv::CeilDiv(units, most)) * s.channel_unit;
}

// The scratch of a thread's entries.
struct EntryWork {
  Entry* entries = nullptr;
  // Run k is entries [starts[k], starts[k + 1]).
  int32_t* starts = nullptr;
  TapPlace* places = nullptr;
  // Of each row of the weight's blocks: how many are kept before the columns
  // that are unpacked, and among them.
  uint16_t* before = nullptr;
  uint16_t* taken = nullptr;
  uint16_t* staged = nullptr;
  float* values = nullptr;

  EntryWork() = default;
  EntryWork(const EntryPlan& plan, float* scratch, float* stage)
      : entries(reinterpret_cast<Entry*>(scratch)),
        starts(reinterpret_cast<int32_t*>(scratch + plan.entry_floats())),
        places(reinterpret_cast<TapPlace*>(starts + plan.run_floats())),
        before(reinterpret_cast<uint16_t*>(starts + plan.run_floats() +
                                           plan.place_floats())),
        taken(before + plan.sides.weight_rows),
        staged(reinterpret_cast<uint16_t*>(stage)),
        values(scratch + plan.Floats() - plan.value_floats()) {}
};

// Rows whose entries are in scratch: of all chunks, or of one at a time.
struct RowSpan {
  int64_t first = 0;
  int64_t rows = 0;
  bool all_chunks = true;
};

}  // namespace thimble::kernels::sparse
