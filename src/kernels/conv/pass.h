// SPDX-License-Identifier: Apache-2.0
//
// What each pass of the convolution sums over, and its scratch: pure functions
// of the shape, the same on every SIMD target. Internal to the family.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "kernels/conv/conv.h"
#include "kernels/conv/operand.h"
#include "kernels/conv/tile.h"

namespace thimble::kernels::conv {

struct Tap {
  int32_t offset;  // from a position to what the tap reads, in its channel
  int32_t weight;  // index among the kernel_h * kernel_w weights of a channel
};

// A sum over taps: the forward pass, or the gradient of the input.
struct Pass {
  Conv2dShape shape;
  bool forward = true;
  Tile tile;
  int64_t channels = 0;  // summed over
  int64_t outputs = 0;
  int64_t channel_weights = 0;  // floats from one channel's weights to the next
  int64_t output_weights = 0;   // and from one output's
  // Phase (a, b) at position (row, col) is the output at row phases*row + a -
  // shift, column phases*col + b - shift, where there is one.
  int64_t phases = 1;
  int64_t shift = 0;
  int64_t out_height = 0;
  int64_t out_width = 0;

  // A thread's scratch, in floats: taps, tile, sums, one line of output, one
  // row of input, the weights of a block of outputs, sums over images.
  int64_t tap_floats() const {
    return RoundUp(2 * shape.kernel_h * shape.kernel_w, kMostLanes);
  }
  int64_t sum_floats() const {
    return phases * kMostOutputs * tile.positions();
  }
  int64_t line_floats() const {
    return phases == 1 ? 0 : phases * RoundUp(tile.cols, kMostLanes);
  }
  int64_t row_floats() const { return RoundUp(tile.src_width, kMostLanes); }
  int64_t weight_floats() const {
    return RoundUp(std::min(outputs, kMostOutputs) * channels * shape.kernel_h *
                       shape.kernel_w,
                   kMostLanes);
  }
  int64_t Floats() const {
    return tap_floats() + tile.Floats(channels) + sum_floats() + line_floats() +
           row_floats() + weight_floats() + PartialFloats(outputs);
  }
};

// Of the tiles that fit with their sums, those with the fewest vectors of
// positions in all; of these, the fewest tiles, then the lowest.
inline void SetBlockRows(Pass& pass) {
  Tile& tile = pass.tile;
  const int64_t row =
      pass.channels * tile.planes_h * tile.planes_w * tile.pitch;
  const int64_t sums = pass.phases * kMostOutputs * tile.pitch;
  const int64_t fit = std::clamp<int64_t>(
      (kTapFloats - pass.weight_floats() - tile.halo_h * row) / (row + sums), 1,
      tile.rows);
  int64_t least = std::numeric_limits<int64_t>::max();
  int64_t blocks = 0;
  for (int64_t rows = fit; rows >= 1; --rows) {
    const int64_t whole = tile.rows / rows;
    const int64_t positions =
        whole * RoundUp(rows * tile.pitch, kMostLanes) +
        RoundUp(tile.rows % rows * tile.pitch, kMostLanes);
    const bool as_few = CeilDiv(tile.rows, rows) == blocks;
    if (positions < least || (positions == least && as_few)) {
      least = positions;
      blocks = CeilDiv(tile.rows, rows);
      tile.block_rows = rows;
    }
  }
}

inline Pass ForwardPass(const Conv2dShape& s) {
  const int64_t taps = s.kernel_h * s.kernel_w;
  Pass pass;
  pass.shape = s;
  pass.tile = ForwardTile(s);
  pass.channels = s.in_channels;
  pass.outputs = s.out_channels;
  pass.channel_weights = taps;
  pass.output_weights = s.in_channels * taps;
  pass.out_height = s.out_height();
  pass.out_width = s.out_width();
  SetBlockRows(pass);
  return pass;
}

inline Pass GradInputPass(const Conv2dShape& s) {
  const int64_t taps = s.kernel_h * s.kernel_w;
  Pass pass;
  pass.shape = s;
  pass.forward = false;
  pass.tile = GradInputTile(s);
  pass.channels = s.out_channels;
  pass.outputs = s.in_channels;
  pass.channel_weights = s.in_channels * taps;
  pass.output_weights = taps;
  pass.phases = s.stride;
  pass.shift = s.padding % s.stride;
  pass.out_height = s.in_height;
  pass.out_width = s.in_width;
  SetBlockRows(pass);
  return pass;
}

// Writes the taps of phase (a, b) and returns how many they are.
inline int64_t ListTaps(const Pass& pass, int64_t a, int64_t b, Tap* taps) {
  const Conv2dShape& s = pass.shape;
  const Tile& tile = pass.tile;
  int64_t count = 0;
  for (int64_t kh = a; kh < s.kernel_h; kh += pass.phases) {
    for (int64_t kw = b; kw < s.kernel_w; kw += pass.phases) {
      const int64_t offset = pass.forward
                                 ? ForwardOffset(tile, kh, kw)
                                 : (tile.halo_h - kh / s.stride) * tile.pitch +
                                       tile.halo_w - kw / s.stride;
      taps[count++] = {.offset = static_cast<int32_t>(offset),
                       .weight = static_cast<int32_t>(kh * s.kernel_w + kw)};
    }
  }
  return count;
}

// The gradient of the weights: lanes run over outputs, a register tile holds
// some taps of them, and positions are summed over. A unit of work is a block
// of outputs and a chunk of channels.
struct WeightPass {
  Conv2dShape shape;
  Tile tile;
  int64_t taps = 0;   // of one channel
  int64_t chunk = 0;  // channels of a unit

  int64_t chunks() const { return CeilDiv(shape.in_channels, chunk); }
  // A thread's scratch, in floats: tile, transposed grad_y, sums, offsets, a
  // row of input, a block of grad_y that is not f32.
  int64_t grad_floats() const {
    return tile.block_rows * tile.cols * kWeightVectors * kMostLanes;
  }
  int64_t sum_floats() const {
    return RoundUp(chunk * taps, kTapGroup) * kWeightVectors * kMostLanes;
  }
  int64_t offset_floats() const {
    return RoundUp(RoundUp(chunk * taps, kTapGroup), kMostLanes);
  }
  // Also a row of grad_w.
  int64_t row_floats() const {
    return RoundUp(std::max(tile.src_width, chunk * taps), kMostLanes);
  }
  int64_t Floats() const {
    return tile.Floats(chunk) + grad_floats() + sum_floats() + offset_floats() +
           row_floats() + grad_floats();
  }
};

inline WeightPass GradWeightPass(const Conv2dShape& s) {
  WeightPass pass;
  pass.shape = s;
  pass.tile = ForwardTile(s);
  pass.taps = s.kernel_h * s.kernel_w;
  // Where all outputs are one block, two chunks make work for two threads.
  const bool one_block = s.out_channels <= kWeightVectors * kMostLanes;
  const int64_t least = std::min<int64_t>(one_block ? 2 : 1, s.in_channels);
  const int64_t most = std::max<int64_t>(1, kChunkTaps / pass.taps);
  const int64_t chunks = std::max(CeilDiv(s.in_channels, most), least);
  pass.chunk = CeilDiv(s.in_channels, chunks);
  const int64_t fit = std::max<int64_t>(1, kWeightPositions / pass.tile.cols);
  pass.tile.block_rows = CeilDiv(pass.tile.rows, CeilDiv(pass.tile.rows, fit));
  return pass;
}

}  // namespace thimble::kernels::conv
