// SPDX-License-Identifier: Apache-2.0
//
// The general way of sparse convolutions, for any shape: the padded tiles of
// conv/tile.h, and one sum for each phase of the output. Pure functions of the
// shape, the same on every SIMD target. Internal to the kernels.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/conv/pass.h"
#include "kernels/sparse/entries.h"
#include "kernels/sparse/weight_entries.h"

namespace thimble::kernels::sparse {

// What scratch is sized for where the shape leaves a choice.
inline constexpr int64_t kTapPositions = 256;  // of a tile
inline constexpr int64_t kTapTileFloats = 8 * 1024;
inline constexpr int64_t kTapSumFloats = 4 * 1024;

struct TapsPass {
  conv::Pass pass;
  EntryPlan plan;  // a slot is a phase

  int64_t slots() const { return plan.slots; }
  // A thread's scratch, in floats: entries, the tile, sums of rows, a line of
  // output, a row of input, sums over images.
  int64_t tile_floats() const {
    return std::max(pass.tile.Floats(plan.chunk), plan.staged_floats());
  }
  int64_t row_sums() const { return plan.slots * pass.tile.positions(); }
  int64_t sum_floats() const { return plan.most_rows * row_sums(); }
  int64_t Floats() const {
    return plan.Floats() + tile_floats() + sum_floats() + pass.line_floats() +
           pass.row_floats() + conv::PartialFloats(plan.most_rows);
  }
};

// As few rows of positions as make up `positions`, in blocks of about the same
// size.
inline void SetTileRows(conv::Tile& tile, int64_t positions) {
  const int64_t fit = std::max<int64_t>(1, positions / tile.pitch);
  tile.block_rows = conv::CeilDiv(tile.rows, conv::CeilDiv(tile.rows, fit));
}

inline TapsPass MakeTapsPass(const Conv2dShape& s, bool forward) {
  TapsPass taps;
  taps.pass = forward ? conv::ForwardPass(s) : conv::GradInputPass(s);
  SetTileRows(taps.pass.tile, kTapPositions);
  EntryPlan& plan = taps.plan;
  plan.sides = SidesOf(s, forward);
  plan.slots = taps.pass.phases * taps.pass.phases;
  plan.channel_floats = taps.pass.tile.channel();
  plan.chunk = ChunkOf(plan, kTapTileFloats);
  const int64_t unit = plan.sides.row_unit;
  const int64_t rows =
      std::min({kRows, kTapSumFloats / taps.row_sums(), plan.sides.rows});
  plan.most_rows = std::max<int64_t>(1, rows / unit) * unit;
  return taps;
}

// Fills in where each tap reads.
inline void ListPlaces(const conv::Pass& pass, TapPlace* places) {
  const Conv2dShape& s = pass.shape;
  const conv::Tile& tile = pass.tile;
  for (int64_t kh = 0; kh < s.kernel_h; ++kh) {
    for (int64_t kw = 0; kw < s.kernel_w; ++kw) {
      const int64_t offset = pass.forward
                                 ? conv::ForwardOffset(tile, kh, kw)
                                 : (tile.halo_h - kh / s.stride) * tile.pitch +
                                       tile.halo_w - kw / s.stride;
      const int64_t slot = kh % pass.phases * pass.phases + kw % pass.phases;
      places[kh * s.kernel_w + kw] = {static_cast<int32_t>(offset),
                                      static_cast<int32_t>(slot)};
    }
  }
}

// The gradient of the weights: lanes run over positions.
struct TapsWeightPass {
  Conv2dShape shape;
  conv::Tile tile;
  WeightPlan plan;

  // A thread's scratch, in floats: entries, the tile, a row of grad_y as
  // positions, a row of input.
  int64_t tile_floats() const {
    return std::max(tile.Floats(plan.chunk), plan.staged_floats());
  }
  int64_t row_floats() const {
    return conv::RoundUp(tile.src_width, conv::kMostLanes);
  }
  int64_t Floats() const {
    return plan.Floats() + tile_floats() + tile.positions() + row_floats();
  }
};

inline TapsWeightPass MakeTapsWeightPass(const Conv2dShape& s) {
  TapsWeightPass taps;
  taps.shape = s;
  taps.tile = conv::ForwardTile(s);
  SetTileRows(taps.tile, kTapPositions);
  WeightPlan& plan = taps.plan;
  plan.sides = SidesOf(s, true);
  plan.channel_floats = taps.tile.channel();
  plan.chunk = WeightChunkOf(plan, kTapTileFloats);
  return taps;
}

}  // namespace thimble::kernels::sparse
