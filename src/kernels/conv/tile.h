// SPDX-License-Identifier: Apache-2.0
//
// Padded tiles of images in scratch, and the convolution as sums over taps of
// them: pure functions of the shape, the same on every SIMD target. Internal to
// the family.
//
// Both the forward pass and the gradient of the input are sums over taps: with
// the input in a padded tile whose rows lie `pitch` floats apart, the output at
// the linear position q = row * pitch + col is
//     sum over channels c and taps t of tile[c][offset(t) + q] * weight(c, t),
// so that lanes may run over q without regard to rows. Positions with col >=
// `cols` hold garbage that is not copied out.
//
// With stride s, the forward tile holds s*s planes per channel, one for each
// parity of padded row and column: in its plane, each tap then has step 1. The
// gradient of the input is computed for each parity (phase) of padded row and
// column: to phase (a, b) only the taps with kh = a, kw = b (mod s) contribute,
// and for padded row s*q + a, tap kh = a + s*m meets row q - m of grad_y.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/conv/conv.h"
#include "kernels/conv/operand.h"

namespace thimble::kernels::conv {

// Bounds over SIMD targets, of which the largest has 16 lanes.
inline constexpr int64_t kMostLanes = 16;
inline constexpr int64_t kMostOutputs = 8;    // outputs of a register tile
inline constexpr int64_t kTapGroup = 12;      // taps of a weight-gradient tile
inline constexpr int64_t kWeightVectors = 2;  // vectors of outputs in it

// What scratch is sized for where the shape leaves a choice. A tile need not
// fit into the L1 cache: every tap makes use of a line that was loaded.
inline constexpr int64_t kTapFloats =
    int64_t{26} * 1024;  // tile, sums, weights
inline constexpr int64_t kChunkTaps = 144;
inline constexpr int64_t kWeightPositions = 128;

constexpr int64_t RoundUp(int64_t n, int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}
constexpr int64_t CeilDiv(int64_t n, int64_t divisor) {
  return (n + divisor - 1) / divisor;
}

// Floats that `outputs` Partials take.
inline int64_t PartialFloats(int64_t outputs) {
  return RoundUp(
      outputs * static_cast<int64_t>(sizeof(Partial) / sizeof(float)),
      kMostLanes);
}

// Padded rows of some channels of one image. Row i, column j of plane (a, b) is
// the source's row step*i + a - pad_h, column step*j + b - pad_w, or zero where
// there is none.
struct Tile {
  int64_t src_height = 0;
  int64_t src_width = 0;
  int64_t step = 1;
  int64_t planes_h = 1;
  int64_t planes_w = 1;
  int64_t pad_h = 0;  // may be negative: rows that no tap meets
  int64_t pad_w = 0;
  int64_t rows = 0;    // rows of positions of the whole image
  int64_t cols = 0;    // positions in a row
  int64_t halo_h = 0;  // further rows and columns that taps reach
  int64_t halo_w = 0;
  int64_t pitch = 0;
  int64_t block_rows = 0;  // rows of positions that one tile serves

  int64_t blocks() const { return CeilDiv(rows, block_rows); }
  int64_t plane() const { return (block_rows + halo_h) * pitch; }
  int64_t channel() const { return planes_h * planes_w * plane(); }
  // Positions of a tile, as whole vectors.
  int64_t positions() const { return RoundUp(block_rows * pitch, kMostLanes); }
  // A whole vector at the last position may reach past the last plane.
  int64_t slack() const { return kMostLanes + halo_w; }
  int64_t Floats(int64_t channels) const {
    return RoundUp(channels * channel() + slack(), kMostLanes);
  }
};

// The columns that taps reach from a row's positions end, and those of the next
// row begin, with padding: as many columns as are zero in both are stored once.
inline void SetPitch(Tile& tile) {
  int64_t shared = tile.halo_w;
  for (int64_t b = 0; b < tile.planes_w; ++b) {
    const int64_t before = tile.pad_w - b;
    const int64_t last = tile.step * (tile.cols + tile.halo_w - 1) + b;
    const int64_t after = last - tile.pad_w - (tile.src_width - 1);
    shared = std::min(shared, before <= 0 ? 0 : CeilDiv(before, tile.step));
    shared = std::min(shared, after <= 0 ? 0 : CeilDiv(after, tile.step));
  }
  tile.pitch = tile.cols + tile.halo_w - shared;
}

inline Tile ForwardTile(const Conv2dShape& s) {
  Tile tile;
  tile.src_height = s.in_height;
  tile.src_width = s.in_width;
  tile.step = s.stride;
  tile.planes_h = std::min(s.stride, s.kernel_h);
  tile.planes_w = std::min(s.stride, s.kernel_w);
  tile.pad_h = tile.pad_w = s.padding;
  tile.rows = s.out_height();
  tile.cols = s.out_width();
  tile.halo_h = (s.kernel_h - 1) / s.stride;
  tile.halo_w = (s.kernel_w - 1) / s.stride;
  SetPitch(tile);
  return tile;
}

inline Tile GradInputTile(const Conv2dShape& s) {
  const int64_t first = s.padding / s.stride;  // row q of the first output
  Tile tile;
  tile.src_height = s.out_height();
  tile.src_width = s.out_width();
  tile.rows = (s.in_height - 1 + s.padding) / s.stride + 1 - first;
  tile.cols = (s.in_width - 1 + s.padding) / s.stride + 1 - first;
  tile.halo_h = (s.kernel_h - 1) / s.stride;
  tile.halo_w = (s.kernel_w - 1) / s.stride;
  tile.pad_h = tile.halo_h - first;
  tile.pad_w = tile.halo_w - first;
  SetPitch(tile);
  return tile;
}

// Offset of tap (kh, kw) in a channel of the forward tile.
inline int64_t ForwardOffset(const Tile& tile, int64_t kh, int64_t kw) {
  const int64_t plane = kh % tile.step * tile.planes_w + kw % tile.step;
  return plane * tile.plane() + kh / tile.step * tile.pitch + kw / tile.step;
}

// How the gradient of the weights is handed over in pieces.
inline GradRegions WeightRegions(const Conv2dShape& s) {
  const int64_t taps = s.kernel_h * s.kernel_w;
  return {s.out_channels, s.in_channels * taps, taps};
}

}  // namespace thimble::kernels::conv
