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

// Two neighbouring rows by two channels at one tap: an entry of blocks whose
// sides are even. What is read once serves both rows.
struct Quad {
  int32_t offset;    // of the first channel
  float weights[4];  // row by row
};

// Where a tap reads, from the channel's first float on, and its slot.
struct TapPlace {
  int32_t offset;
  int32_t slot;
};

// The same of a column of the weight's blocks, and its run (a row's slot).
struct ColumnPlace {
  int32_t run;
  int32_t offset;
};

// Scratch is planned for so many entries at a time, runs of them with the same
// chunk, row and slot, and rows, if not a single row asks for more.
inline constexpr int64_t kEntries = 4096;
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

  int64_t block_values() const { return row_unit * channel_unit; }
  // Rows and channels of an entry, where a way has quads.
  int64_t QuadSide() const {
    return row_unit % 2 == 0 && channel_unit % 2 == 0 ? 2 : 1;
  }
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
  int64_t side = 1;            // 2: entries are quads, and rows go in pairs
  int64_t channel_floats = 0;  // of the tile
  int64_t most_rows = 0;       // rows at a time, whole blocks
  int64_t entries = kEntries;  // weights at a time, if not more are needed

  int64_t chunks() const { return conv::CeilDiv(sides.channels, chunk); }
  // In weights.
  int64_t capacity() const {
    return std::max(entries, chunk * sides.taps * sides.row_unit);
  }
  // Of the weight's blocks, those of a chunk or of the rows at a time.
  int64_t columns() const {
    return sides.taps * (sides.forward ? chunk / sides.channel_unit
                                       : most_rows / sides.row_unit);
  }
  // Of entries whose chunks are not unpacked all at once, too.
  int64_t runs() const { return std::max(kRuns, sides.row_unit * slots); }

  // A thread's scratch, in floats: entries, where runs begin, places of taps
  // and columns, two numbers for each row of the weight, a few blocks' values.
  int64_t entry_floats() const {
    const int64_t floats = side == 2 ? 5 * capacity() / 4 : 2 * capacity();
    return conv::RoundUp(floats, conv::kMostLanes);
  }
  int64_t run_floats() const {
    return conv::RoundUp(runs() + 2, conv::kMostLanes);
  }
  int64_t place_floats() const {
    return conv::RoundUp(2 * (sides.taps + columns()), conv::kMostLanes);
  }
  int64_t row_floats() const {
    return conv::RoundUp(sides.weight_rows, conv::kMostLanes);
  }
  int64_t value_floats() const {
    return std::max<int64_t>(
        256, conv::RoundUp(sides.block_values(), conv::kMostLanes));
  }
  int64_t Floats() const {
    return entry_floats() + run_floats() + place_floats() + row_floats() +
           value_floats();
  }
  // Columns are staged where the tile will lie.
  int64_t staged_floats() const {
    const int64_t each = side == 2 ? sides.block_values() : 1;
    return conv::RoundUp(capacity() / (2 * each) + 1, conv::kMostLanes);
  }
};

// Channels of a tile: as many as fit into `floats`, in chunks of about the same
// size, of which any has not too many entries in a block's rows.
inline int64_t ChunkOf(const EntryPlan& plan, int64_t floats) {
  const Sides& s = plan.sides;
  const int64_t fit =
      std::min(floats / plan.channel_floats, kEntries / (s.taps * s.row_unit));
  const int64_t most = std::max<int64_t>(1, fit / s.channel_unit);
  const int64_t units = s.channels / s.channel_unit;
  return conv::CeilDiv(units, conv::CeilDiv(units, most)) * s.channel_unit;
}

// How often each of four slots was met: counters of 16 bits in a register, so
// that one does not wait for what was stored of it just before.
class SlotRanks {
 public:
  static constexpr int64_t kSlots = 4;
  // How often `slot` was met before.
  int64_t Meet(int32_t slot) {
    const int shift = 16 * slot;
    const auto rank = static_cast<int64_t>(counts_ >> shift & 0xFFFF);
    counts_ += uint64_t{1} << shift;
    return rank;
  }
  int32_t count(int64_t slot) const {
    return static_cast<int32_t>(counts_ >> (16 * slot) & 0xFFFF);
  }

 private:
  uint64_t counts_ = 0;
};

// How many of n ascending columns are before `end`.
inline int64_t ColumnsBefore(const uint16_t* columns, int64_t n, int64_t end) {
  if (n == 0 || columns[n - 1] < end) return n;
  return std::lower_bound(columns, columns + n, end) - columns;
}

// The scratch of a thread's entries.
struct EntryWork {
  Entry* entries = nullptr;
  Quad* quads = nullptr;  // instead
  // Run k is entries [starts[k], starts[k + 1]).
  int32_t* starts = nullptr;
  TapPlace* places = nullptr;
  ColumnPlace* columns = nullptr;
  // Of each row of the weight's blocks: how many are kept before the columns
  // that are unpacked, and among them.
  uint16_t* before = nullptr;
  uint16_t* taken = nullptr;
  uint16_t* staged = nullptr;
  float* values = nullptr;

  EntryWork() = default;
  EntryWork(const EntryPlan& plan, float* scratch, float* stage)
      : entries(reinterpret_cast<Entry*>(scratch)),
        quads(reinterpret_cast<Quad*>(scratch)),
        starts(reinterpret_cast<int32_t*>(scratch + plan.entry_floats())),
        places(reinterpret_cast<TapPlace*>(starts + plan.run_floats())),
        columns(reinterpret_cast<ColumnPlace*>(places + plan.sides.taps)),
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
