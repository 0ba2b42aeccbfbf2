// SPDX-License-Identifier: Apache-2.0
//
// The fastest way through 3x3 convolutions of stride 1 and padding 1, forward
// and gradient of the input: Winograd's F(2x2, 3x3), which multiplies 16 times
// where direct sums multiply 36 times. Pure functions of the shape, the same on
// every SIMD target. Internal to the family.
//
// Outputs are computed in tiles of 2x2 pixels, each from 4x4 of the input:
//     y = A' [ (G w G') . (B' x B) ] A,   '.' element by element,
// summed over channels inside the brackets:
//     A' = 1 1  1  0    B' = 1  0 -1  0    G =  1   0   0
//          0 1 -1 -1         0  1  1  0        .5  .5  .5
//                            0 -1  1  0        .5 -.5  .5
//                            0  1  0 -1         0   0   1
// Row i of the 4x4 products is slice i. Slices are summed one after the other:
// only one slice of weights and input is in scratch at a time.
//
// Lanes run over tiles. A strip is 16 tiles: 64 neighbouring pixels of a plane,
// which are two rows of 32, four of 16, or eight of 8.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/conv/conv.h"
#include "kernels/conv/operand.h"
#include "kernels/conv/tile.h"

namespace thimble::kernels::conv {

inline constexpr int64_t kStripPixels = 64;
inline constexpr int64_t kSlices = 4;
inline constexpr int64_t kWinogradBytes = int64_t{126} * 1024;

// Images whose planes are cut into strips.
struct StripGrid {
  int64_t channels = 0;
  int64_t height = 0;
  int64_t width = 0;

  int64_t image_strips() const { return height * width / kStripPixels; }
};

struct WinogradPass {
  Conv2dShape shape;
  bool forward = true;
  StripGrid grid;  // of what is summed over
  int64_t outputs = 0;
  int64_t channel_weights = 0;  // from one channel's weights to the next
  int64_t output_weights = 0;   // and from one output's
  int64_t chunk = 0;            // channels of a slice that are in scratch
  int64_t group = 0;            // outputs whose weights are
  int64_t strips = 0;           // whose sums are
  bool resident = false;  // all slices of a group's weights are in scratch

  int64_t groups() const { return CeilDiv(outputs, group); }
  int64_t slice_weights() const { return chunk * group * 4; }
  int64_t weight_floats() const {
    return (resident ? kSlices : 1) * slice_weights();
  }
  int64_t tile_floats() const { return chunk * kStripPixels; }
  int64_t sum_floats() const { return strips * group * kStripPixels; }
  // Outputs in their order, or converted weights of a few channels.
  int64_t line_floats() const {
    return std::max(strips * kStripPixels, int64_t{8} * 72);
  }
  int64_t Floats() const {
    return weight_floats() + tile_floats() + sum_floats() + line_floats() +
           PartialFloats(group);
  }
};

inline bool IsWinograd(const Conv2dShape& s) {
  if (s.kernel_h != 3 || s.kernel_w != 3) return false;
  if (s.padding != 1 || s.stride != 1) return false;
  if (s.in_width != 8 && s.in_width != 16 && s.in_width != 32) return false;
  if (s.in_height * s.in_width % kStripPixels != 0) return false;
  // Few channels do not pay for the transformations.
  if (s.in_channels < 16 || s.out_channels < 16) return false;
  return s.in_channels % 8 == 0 && s.out_channels % 8 == 0;
}

// What the parts of one output of one strip cost, in about the time of one
// multiply-add of a vector (16 * channels are spent on products): to transform
// an input is shared by the group, to transform weights by the strips.
inline constexpr int64_t kInputCost = 64;
inline constexpr int64_t kWeightCost = 8;
inline constexpr int64_t kSumCost = 40;
inline int64_t WinogradCost(const WinogradPass& pass) {
  const int64_t scale = 1024;
  int64_t cost = scale * kInputCost * pass.grid.channels / pass.group;
  if (!pass.resident || pass.groups() > 1) {
    cost += scale * kWeightCost * pass.grid.channels / pass.strips;
  }
  return cost + scale * kSumCost * CeilDiv(pass.grid.channels, pass.chunk);
}

// False where the shape has no such way.
inline bool MakeWinogradPass(const Conv2dShape& s, bool forward,
                             WinogradPass& best) {
  if (!IsWinograd(s)) return false;
  WinogradPass pass;
  pass.shape = s;
  pass.forward = forward;
  pass.grid = {forward ? s.in_channels : s.out_channels, s.in_height,
               s.in_width};
  pass.outputs = forward ? s.out_channels : s.in_channels;
  pass.channel_weights = forward ? 9 : s.in_channels * 9;
  pass.output_weights = forward ? s.in_channels * 9 : 9;
  const int64_t pixels = s.in_height * s.in_width;
  const int64_t shared = CeilDiv(100, ChunkImages(pixels)) * pass.outputs * 8;
  int64_t least = 0;
  for (int64_t groups = 1; groups <= pass.outputs / 8; groups *= 2) {
    pass.group = RoundUp(CeilDiv(pass.outputs, groups), 8);
    for (int64_t chunks = 1; chunks <= 4; chunks *= 2) {
      pass.chunk = RoundUp(CeilDiv(pass.grid.channels, chunks), 8);
      for (pass.strips = 2; pass.strips <= 16; pass.strips *= 2) {
        for (const bool resident : {false, true}) {
          pass.resident = resident;
          if (resident && chunks > 1) continue;
          if (pass.Floats() * 4 + shared > kWinogradBytes) continue;
          const int64_t cost = WinogradCost(pass);
          if (least != 0 && cost >= least) continue;
          least = cost;
          best = pass;
        }
      }
    }
  }
  return least != 0;
}

// The gradient of the weights, with the same products summed over tiles:
//     grad_w = G' [ (A grad_y A') . (B' x B) ] G.
// Lanes run over outputs. A unit of work is a block of outputs and a chunk of
// channels; it passes over all strips, some at a time.
struct WinogradWeightPass {
  Conv2dShape shape;
  StripGrid grid;     // of x
  int64_t chunk = 0;  // channels of a unit
  int64_t block = 0;  // outputs of a unit

  static constexpr int64_t kStrips = 2;
  int64_t chunks() const { return CeilDiv(shape.in_channels, chunk); }
  int64_t blocks() const { return CeilDiv(shape.out_channels, block); }
  // A thread's scratch, in floats: sums, transposed grad_y, one slice's rows of
  // it, one slice of x, and grad_y before it is transposed (or a row of
  // grad_w).
  int64_t sum_floats() const { return chunk * 16 * block; }
  int64_t grad_floats() const { return kStrips * kStripPixels * block; }
  int64_t slice_floats() const { return grad_floats() / 2; }
  int64_t tile_floats() const { return kStrips * chunk * kStripPixels; }
  int64_t piece_floats() const {
    return std::max(block * kStripPixels, RoundUp(chunk * 9, kMostLanes));
  }
  int64_t Floats() const {
    return sum_floats() + grad_floats() + slice_floats() + tile_floats() +
           piece_floats();
  }
};

// In pieces, blocks are no larger than a region, of which the sums need room
// too.
inline bool MakeWinogradWeightPass(const Conv2dShape& s, bool in_pieces,
                                   WinogradWeightPass& pass) {
  if (!IsWinograd(s) || s.out_channels % 16 != 0) return false;
  pass.shape = s;
  pass.grid = {s.in_channels, s.in_height, s.in_width};
  pass.block = s.out_channels % 32 == 0 && !in_pieces ? 32 : 16;
  // Two chunks, where there is one block of outputs, are work for two threads.
  const int64_t most = s.in_channels >= 64 ? 32 : 16;
  const int64_t chunks = std::max<int64_t>(2, CeilDiv(s.in_channels, most));
  pass.chunk = RoundUp(CeilDiv(s.in_channels, chunks), 8);
  return pass.Floats() * 4 <= kWinogradBytes;
}

}  // namespace thimble::kernels::conv
