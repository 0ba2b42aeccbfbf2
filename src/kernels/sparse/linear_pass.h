// SPDX-License-Identifier: Apache-2.0
//
// Linear maps with sparse weights: x is transposed in scratch for a block of
// its rows, so that lanes run over these. Pure functions of the shape, the same
// on every SIMD target. Internal to the kernels.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/matmul/matmul.h"
#include "kernels/sparse/entries.h"
#include "kernels/sparse/weight_entries.h"

namespace thimble::kernels::sparse {

inline constexpr int64_t kLinearRows = 128;  // of x at a time
inline constexpr int64_t kLinearTileFloats = 8 * 1024;
inline constexpr int64_t kLinearLine = 8;      // rows made f32 at a time
inline constexpr int64_t kLinearOutputs = 16;  // of grad_y transposed at a time

inline Sides LinearSides(const LinearShape& s, bool forward) {
  const WeightBlock& block = *s.blocks;
  Sides sides;
  sides.forward = forward;
  sides.rows = forward ? s.out : s.in;
  sides.channels = forward ? s.in : s.out;
  sides.row_unit = forward ? block.outputs : block.inputs;
  sides.channel_unit = forward ? block.inputs : block.outputs;
  sides.weight_rows = s.out / block.outputs;
  return sides;
}

// A thread's scratch, in floats: entries, the tile [channel][row of x], sums
// [row][row of x], some rows of x or y as f32.
struct LinearPass {
  EntryPlan plan;

  int64_t tile_floats() const {
    return std::max(plan.chunk * kLinearRows, plan.staged_floats());
  }
  int64_t sum_floats() const { return plan.most_rows * kLinearRows; }
  int64_t line_floats() const {
    return conv::RoundUp(kLinearLine * std::max(plan.chunk, plan.most_rows),
                         conv::kMostLanes);
  }
  int64_t Floats() const {
    return plan.Floats() + tile_floats() + sum_floats() + line_floats();
  }
};

inline LinearPass MakeLinearPass(const LinearShape& s, bool forward) {
  LinearPass pass;
  EntryPlan& plan = pass.plan;
  plan.sides = LinearSides(s, forward);
  plan.channel_floats = kLinearRows;
  plan.chunk = ChunkOf(plan, kLinearTileFloats);
  const int64_t unit = plan.sides.row_unit;
  plan.most_rows =
      std::max<int64_t>(1, std::min(kRows, plan.sides.rows) / unit) * unit;
  return pass;
}

// The same for the gradient of the weights: entries, the tile, some outputs of
// grad_y as the tile has them, some rows as f32.
struct LinearWeightPass {
  WeightPlan plan;

  int64_t tile_floats() const {
    return std::max(plan.chunk * kLinearRows, plan.staged_floats());
  }
  int64_t line_floats() const {
    return conv::RoundUp(kLinearLine * std::max(plan.chunk, kLinearOutputs),
                         conv::kMostLanes);
  }
  int64_t Floats() const {
    return plan.Floats() + tile_floats() + kLinearOutputs * kLinearRows +
           line_floats();
  }
};

inline LinearWeightPass MakeLinearWeightPass(const LinearShape& s) {
  LinearWeightPass pass;
  WeightPlan& plan = pass.plan;
  plan.sides = LinearSides(s, true);
  plan.channel_floats = kLinearRows;
  plan.chunk = WeightChunkOf(plan, kLinearTileFloats);
  return pass;
}

}  // namespace thimble::kernels::sparse
