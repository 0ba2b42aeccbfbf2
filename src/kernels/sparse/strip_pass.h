// SPDX-License-Identifier: Apache-2.0
//
// The fast way of sparse convolutions, for the shapes of conv/grouped.h: 3x3
// (padding 1) and 1x1 kernels of stride 1 and 2 with rows of 8, 16 and 32
// positions. Pure functions of the shape and of a target's lanes. Internal to
// the kernels.
//
// As there, tiles have no padded columns: the taps of a group are summed up at
// the column that they read, and the sum is moved. A slot is a group of a
// phase. Rows above and below the image are in the tile, as zeros, so that all
// positions have the same entries. A strip is as many rows as fill the
// registers with one output's sums; the tile, of a chunk of channels, is to
// stay close to the L1 cache while all rows' entries pass over it.
//
// With 16 lanes, two images of rows of 8 lie side by side; where they have
// eight rows, another two lie below them, a row apart, so that a strip is 16
// vectors.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/conv/grouped.h"
#include "kernels/sparse/entries.h"
#include "kernels/sparse/weight_entries.h"

namespace thimble::kernels::sparse {

inline constexpr int64_t kStripTileFloats = 10 * 1024;
inline constexpr int64_t kStripPositions = 256;              // of a tile
inline constexpr int64_t kStripFloats = int64_t{126} * 256;  // of scratch
inline constexpr int64_t kUsualKept = 4;  // one of so many weights
inline constexpr int64_t kMostPhases = 4;

// Where strips lie in a tile.
struct StripTile {
  conv::GroupedPass grouped;  // the shape; block_rows is this tile's
  int64_t pair = 1;           // images side by side in a row
  int64_t sets = 1;           // of so many images, one above the other
  int64_t row_floats = 0;
  int64_t vectors = 0;     // of a strip
  int64_t strip_rows = 0;  // of positions
  int64_t strips = 0;

  int64_t rows() const { return strips * strip_rows; }
  int64_t images() const { return pair * sets; }
  // With those between sets, which nothing reads.
  int64_t stored_rows() const { return sets * (rows() + 1) - 1; }
  int64_t set_floats() const { return (rows() + 1) * row_floats; }
  int64_t tiles() const { return conv::CeilDiv(grouped.height, rows()); }
  int64_t positions() const { return sets * rows() * row_floats; }
  int64_t phases() const { return grouped.phases * grouped.phases; }
  int64_t channel_floats() const {
    if (grouped.step == 2 && grouped.taps() == 9) {
      return (4 * stored_rows() + 2) * row_floats;
    }
    return (stored_rows() + grouped.above + grouped.below) * row_floats;
  }
};

// False where the shape, or a target with so few lanes, has no such way.
inline bool MakeStripTile(const Conv2dShape& s, bool forward, int64_t lanes,
                          StripTile& tile) {
  conv::GroupedPass& g = tile.grouped;
  if (lanes < 8 || !conv::MakeGroupedPass(s, forward, g)) return false;
  tile.pair = g.width < lanes ? lanes / g.width : 1;
  tile.row_floats = tile.pair * g.width;
  // Where a pair of images has eight rows, two pairs make up sixteen.
  const bool fills = g.height * tile.row_floats >= 16 * lanes;
  if (lanes == 16 && !fills && g.height == 8 && tile.row_floats == lanes) {
    tile.sets = 2;
  }
  tile.vectors = lanes == 16 && (fills || tile.sets == 2) ? 16 : 8;
  tile.strip_rows = tile.vectors * lanes / (tile.sets * tile.row_floats);
  const int64_t all = conv::CeilDiv(g.height, tile.strip_rows);
  tile.strips = std::min(all, kStripPositions / (tile.vectors * lanes));
  g.block_rows = tile.stored_rows();
  return true;
}

// The slots of one phase: moves are those of conv::TapGroup.
struct StripPhase {
  int64_t first = 0;
  int64_t count = 0;
  int64_t moves[conv::kGroups] = {};
};

// Fills in phases, and where each tap reads; returns how many slots there are.
// `places` may be null.
inline int64_t ListStripSlots(const StripTile& tile, StripPhase* phases,
                              TapPlace* places) {
  const conv::GroupedPass& g = tile.grouped;
  int64_t slots = 0;
  for (int64_t p = 0; p < tile.phases(); ++p) {
    conv::TapGroup groups[conv::kGroups];
    const int64_t count = conv::ListGroups(g, tile.row_floats, p / g.phases,
                                           p % g.phases, groups);
    phases[p].first = slots;
    phases[p].count = count;
    for (int64_t i = 0; i < count; ++i, ++slots) {
      phases[p].moves[i] = groups[i].move;
      for (int64_t t = 0; places != nullptr && t < groups[i].count; ++t) {
        const conv::GroupTap& tap = groups[i].taps[t];
        places[tap.weight] = {static_cast<int32_t>(tap.offset),
                              static_cast<int32_t>(slots)};
      }
    }
  }
  return slots;
}

struct StripPass {
  StripTile tile;
  EntryPlan plan;

  // A thread's scratch, in floats: entries, the tile, sums of rows where there
  // are several chunks, those of one row (of a pair) by images and phases, the
  // phases joined, sums over images.
  int64_t tile_floats() const {
    return std::max(plan.chunk * tile.channel_floats(), plan.staged_floats());
  }
  int64_t row_sums() const { return tile.phases() * tile.positions(); }
  int64_t sum_floats() const {
    return plan.chunks() == 1 ? 0 : plan.most_rows * row_sums();
  }
  int64_t out_floats() const { return plan.side * row_sums(); }
  int64_t line_floats() const { return tile.phases() == 1 ? 0 : row_sums(); }
  int64_t Floats() const {
    return plan.Floats() + tile_floats() + sum_floats() + out_floats() +
           line_floats() + conv::PartialFloats(plan.most_rows);
  }
};

inline bool MakeStripPass(const Conv2dShape& s, bool forward, int64_t lanes,
                          StripPass& pass) {
  if (!MakeStripTile(s, forward, lanes, pass.tile)) return false;
  StripPhase phases[kMostPhases];
  EntryPlan& plan = pass.plan;
  plan.sides = SidesOf(s, forward);
  plan.slots = ListStripSlots(pass.tile, phases, nullptr);
  plan.side = plan.sides.QuadSide();
  plan.channel_floats = pass.tile.channel_floats();
  plan.chunk = ChunkOf(plan, kStripTileFloats);
  // What is left of the scratch is for rows: their sums, and their entries if
  // kUsualKept of the weights are kept.
  const int64_t pixels =
      pass.tile.phases() * pass.tile.grouped.height * pass.tile.grouped.width;
  const int64_t shared =
      conv::CeilDiv(conv::kGroupImages, conv::ChunkImages(pixels)) *
      plan.sides.rows * 2;
  const int64_t unit = plan.sides.row_unit;
  const int64_t columns = plan.sides.channels * plan.sides.taps;
  for (int64_t units = std::min(kRows, plan.sides.rows) / unit; units > 0;
       --units) {
    plan.most_rows = units * unit;
    plan.entries = std::min<int64_t>(
        plan.most_rows * columns,
        std::max<int64_t>(kEntries / 2, plan.most_rows * columns / kUsualKept));
    const int64_t left = kStripFloats - shared - pass.Floats();
    if (left < 0) continue;
    // Of a weight: its share of an entry, and of its staged column.
    const int64_t more = plan.side == 2 ? left / 11 * 8 : left / 5 * 2;
    plan.entries =
        std::min(plan.most_rows * columns, plan.entries + more / 16 * 16);
    return true;
  }
  return false;
}

// The gradient of the weights: x in the tile, grad_y in registers, moved the
// other way.
struct StripWeightPass {
  StripTile tile;
  WeightPlan plan;

  // A thread's scratch, in floats: entries, the tile, a row of grad_y, or two.
  int64_t tile_floats() const {
    return std::max(plan.chunk * tile.channel_floats(), plan.staged_floats());
  }
  int64_t Floats() const {
    return plan.Floats() + tile_floats() + plan.side * tile.positions();
  }
};

inline bool MakeStripWeightPass(const Conv2dShape& s, int64_t lanes,
                                StripWeightPass& pass) {
  if (!MakeStripTile(s, true, lanes, pass.tile)) return false;
  StripPhase phases[kMostPhases];
  WeightPlan& plan = pass.plan;
  plan.sides = SidesOf(s, true);
  plan.slots = ListStripSlots(pass.tile, phases, nullptr);
  plan.side = plan.sides.QuadSide();
  plan.channel_floats = pass.tile.channel_floats();
  plan.chunk = WeightChunkOf(plan, kStripTileFloats);
  return pass.Floats() <= kStripFloats;
}

}  // namespace thimble::kernels::sparse
