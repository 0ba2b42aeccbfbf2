// SPDX-License-Identifier: Apache-2.0
//
// The gradient of the weights of 3x3 (padding 1) and 1x1 (padding 0) kernels:
// pure functions of the shape, the same on every SIMD target. Internal to the
// family.
//
// Lanes run over output channels, sums over positions. A register tile holds
// the taps of one kernel row for a few channels; rows and columns that would
// meet padding are left out, so that x is read where it lies, unpadded.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/conv/conv.h"
#include "kernels/conv/tile.h"

namespace thimble::kernels::conv {

inline constexpr int64_t kWeightBytes = int64_t{122} * 1024;
inline constexpr int64_t kWeightTile =
    256;                                   // positions that are wanted at once
inline constexpr int64_t kGradPiece = 64;  // positions converted at once

// A unit of work is a block of outputs (as many as fill one or two vectors) and
// a chunk of channels; it passes over all images, `images` of them, or
// `block_rows` rows of one, at a time.
struct RowWeightPass {
  Conv2dShape shape;
  int64_t height = 0;  // of grad_y
  int64_t width = 0;
  int64_t chunk = 0;
  int64_t images = 1;
  int64_t block_rows = 0;
  int64_t limit = kWeightVectors * kMostLanes;  // outputs of a block, at most

  int64_t taps() const { return shape.kernel_h * shape.kernel_w; }
  int64_t chunks() const { return CeilDiv(shape.in_channels, chunk); }
  int64_t most_outputs() const {
    return std::min(limit, RoundUp(shape.out_channels, kMostLanes));
  }
  int64_t source_rows() const {
    return std::min(shape.in_height,
                    (block_rows - 1) * shape.stride + shape.kernel_h);
  }
  // A thread's scratch, in floats: x where it needs conversion, transposed
  // grad_y, sums, grad_y before it is transposed (or a row of grad_w).
  int64_t x_floats() const {
    return RoundUp(images * chunk * source_rows() * shape.in_width, kMostLanes);
  }
  int64_t grad_floats() const {
    return images * block_rows * width * most_outputs();
  }
  int64_t sum_floats() const { return chunk * taps() * most_outputs(); }
  int64_t piece_floats() const {
    return std::max(most_outputs() * kGradPiece,
                    RoundUp(chunk * taps(), kMostLanes));
  }
  int64_t Floats() const {
    return x_floats() + grad_floats() + sum_floats() + piece_floats();
  }
};

// False where the kernel is another one, or rows are too long for the scratch.
inline bool MakeRowWeightPass(const Conv2dShape& s, RowWeightPass& pass) {
  const bool three = s.kernel_h == 3 && s.kernel_w == 3 && s.padding == 1;
  const bool one = s.kernel_h == 1 && s.kernel_w == 1 && s.padding == 0;
  if ((!three && !one) || s.stride > 2) return false;
  pass.shape = s;
  pass.height = s.out_height();
  pass.width = s.out_width();
  // Two chunks, where there is one block of outputs, are work for two threads.
  const int64_t most = s.in_channels >= 64 ? 32 : 16;
  const int64_t chunks = CeilDiv(s.in_channels, most);
  pass.chunk = CeilDiv(s.in_channels, chunks);
  const int64_t pixels = pass.height * pass.width;
  pass.images = std::max<int64_t>(1, kWeightTile / pixels);
  pass.block_rows =
      std::min(pass.height, std::max<int64_t>(1, kWeightTile / pass.width));
  while (pass.Floats() * 4 > kWeightBytes && pass.images > 1) --pass.images;
  while (pass.Floats() * 4 > kWeightBytes && pass.block_rows > 1) {
    pass.block_rows = CeilDiv(pass.block_rows, 2);
  }
  return pass.Floats() * 4 <= kWeightBytes;
}

// The same sums for a gradient that is handed over in pieces: blocks are no
// larger than a region, of which the sums need room too.
inline RowWeightPass InPieces(RowWeightPass pass) {
  const int64_t outputs = WeightRegions(pass.shape).outputs();
  pass.limit = std::min(pass.limit, RoundUp(outputs, kMostLanes));
  return pass;
}

}  // namespace thimble::kernels::conv
