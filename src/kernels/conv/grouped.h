// SPDX-License-Identifier: Apache-2.0
//
// The fast way through 3x3 (padding 1) and 1x1 (padding 0) convolutions of
// stride 1 and 2 whose rows fill vectors: pure functions of the shape, the same
// on every SIMD target. Internal to the family.
//
// Lanes run over the positions of a row, and no position is wasted on padding:
// tiles have no padded columns. All taps whose column differs from the output's
// by the same amount form a group; they are summed at the column of what they
// read, and the sum as a whole is then moved by that amount, with zeros moving
// in from the row's ends. So all loads are aligned, and nothing else is shifted
// than one sum per group. Rows above and below the image are not stored either:
// taps that meet them are left out.
//
// Stride 2, forward: the tile holds the four parities of rows and columns as
// planes of their own. Kernel column 0 reads odd columns and is moved by one;
// columns 1 and 2 read even and odd ones in place. Stride 2, gradient of the
// input: output rows and columns of either parity (phases) are sums of their
// own, of 1, 2, 2 and 4 taps.
//
// A row of 8 lies beside the same row of the next image: they share a vector of
// 16 lanes, or are two of 8, which make a larger register tile.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "kernels/conv/conv.h"
#include "kernels/conv/operand.h"
#include "kernels/conv/tile.h"

namespace thimble::kernels::conv {

// Scratch of a thread, and, for a batch of so many images, what is shared.
inline constexpr int64_t kGroupBytes = int64_t{126} * 1024;
inline constexpr int64_t kGroupImages = 100;
inline constexpr int64_t kCachedBytes = int64_t{640} * 1024;
inline constexpr int64_t kBlockOutputs = 8;  // bound of a register tile's
inline constexpr int64_t kGroups = 3;
inline constexpr int64_t kGroupTaps = 6;

struct GroupTap {
  int64_t offset = 0;  // from a position in the first plane to what is read
  int64_t weight = 0;  // index among the kernel_h * kernel_w of a channel
  int64_t row = 0;     // of the source, relative: -1 above, 1 below
};

// Taps in order of rows. `move` is 1 when sums move to the next column, -1 to
// the one before, 0 when they stay; groups that move come first.
struct TapGroup {
  int64_t move = 0;
  int64_t count = 0;
  GroupTap taps[kGroupTaps];
};

struct GroupedPass {
  Conv2dShape shape;
  bool forward = true;
  int64_t channels = 0;  // summed over
  int64_t outputs = 0;
  int64_t channel_weights = 0;  // from one channel's weights to the next
  int64_t output_weights = 0;   // and from one output's
  int64_t width = 0;            // positions: what one phase has
  int64_t height = 0;
  int64_t src_width = 0;
  int64_t src_height = 0;
  int64_t step = 1;    // source columns and rows per position: 1 or 2
  int64_t phases = 1;  // output columns and rows per position: 1 or 2
  // How many rows of positions further up and down taps read.
  int64_t above = 0;
  int64_t below = 0;
  int64_t block_rows = 0;  // rows of positions that a tile serves
  int64_t group = 0;       // outputs whose weights are in scratch together

  int64_t taps() const { return shape.kernel_h * shape.kernel_w; }
  int64_t blocks() const { return CeilDiv(height, block_rows); }
  int64_t groups() const { return CeilDiv(outputs, group); }
  // Images whose rows lie side by side.
  int64_t pair() const { return width < kMostLanes ? kMostLanes / width : 1; }

  // Images whose source stays in the L2 cache while all groups pass over it.
  int64_t cached_images() const {
    const int64_t image = channels * src_height * src_width * 4;
    return std::clamp<int64_t>(kCachedBytes / image, 4, 16);
  }

  // The tile's rows per channel: `step` planes of even (then odd) columns for
  // each of `step` row parities. Odd rows begin one row above.
  int64_t channel_rows() const {
    if (step == 2 && taps() == 9) return 4 * block_rows + 2;
    // The first tile has no row above, the last one none below.
    const int64_t tiles = blocks();
    if (tiles == 1) return block_rows;
    return block_rows + (tiles == 2 ? std::max(above, below) : above + below);
  }
  int64_t row_floats() const { return pair() * width; }
  int64_t tile_floats() const {
    return channels * channel_rows() * row_floats();
  }
  int64_t weight_floats() const {
    const int64_t most = RoundUp(std::min(group, outputs), 4);
    return RoundUp(most * channels * taps(), kMostLanes);
  }
  int64_t sum_floats() const {
    return phases * phases * kBlockOutputs * block_rows * row_floats();
  }
  // Interleaved phases of one output, or converted weights of a few channels.
  int64_t line_floats() const {
    const int64_t out = phases * phases * block_rows * width;
    return RoundUp(std::max(out, kBlockOutputs * 72), kMostLanes);
  }
  int64_t Floats() const {
    return tile_floats() + weight_floats() + sum_floats() + line_floats() +
           PartialFloats(group);
  }
};

// Whether this way serves the shape at all; a target also needs lanes that its
// rows fill (see grouped-inl.h).
inline bool IsGrouped(const Conv2dShape& s) {
  const bool three = s.kernel_h == 3 && s.kernel_w == 3 && s.padding == 1;
  const bool one = s.kernel_h == 1 && s.kernel_w == 1 && s.padding == 0;
  if (!three && !one) return false;
  if (s.stride != 1 && s.stride != 2) return false;
  if (s.in_width % s.stride != 0 || s.in_height % s.stride != 0) return false;
  const int64_t width = s.in_width / s.stride;
  // Images in pairs must be few enough pixels that sums are kept for pairs.
  if (width == 8) return 2 * s.in_width * s.in_height <= kReductionPixels;
  return width == 16 || width == 32;
}

// Loading tiles is the overhead: of the tilings that fit, the one that loads
// the fewest rows in all; of these the one with the fewest tiles.
inline bool SetBlocks(GroupedPass& pass) {
  int64_t least = std::numeric_limits<int64_t>::max();
  GroupedPass best = pass;
  const int64_t pixels = pass.phases * pass.phases * pass.height * pass.width;
  const int64_t shared =
      CeilDiv(kGroupImages, ChunkImages(pixels)) * pass.outputs * 2 * 4;
  for (int64_t group = 8; group < pass.outputs + 8; group += 8) {
    pass.group = group;
    for (int64_t rows = pass.height; rows >= 1; --rows) {
      pass.block_rows = rows;
      if (pass.Floats() * 4 + shared > kGroupBytes) continue;
      const int64_t tiles = pass.blocks();
      const int64_t loaded =
          pass.groups() *
          (pass.step * pass.height + (tiles - 1) * (pass.above + pass.below));
      if (loaded * 64 + tiles >= least) continue;
      least = loaded * 64 + tiles;
      best = pass;
    }
  }
  pass = best;
  return least != std::numeric_limits<int64_t>::max();
}

// False where the shape has no such way, or not within its scratch.
inline bool MakeGroupedPass(const Conv2dShape& s, bool forward,
                            GroupedPass& pass) {
  if (!IsGrouped(s)) return false;
  pass.shape = s;
  pass.forward = forward;
  const int64_t taps = s.kernel_h * s.kernel_w;
  pass.width = s.in_width / s.stride;
  pass.height = s.in_height / s.stride;
  pass.channels = forward ? s.in_channels : s.out_channels;
  pass.outputs = forward ? s.out_channels : s.in_channels;
  pass.channel_weights = forward ? taps : s.in_channels * taps;
  pass.output_weights = forward ? s.in_channels * taps : taps;
  pass.src_width = forward ? s.in_width : pass.width;
  pass.src_height = forward ? s.in_height : pass.height;
  (forward ? pass.step : pass.phases) = s.stride;
  if (taps == 9) {
    pass.above = s.stride == 1 || forward ? 1 : 0;
    pass.below = s.stride == 1 || !forward ? 1 : 0;
  }
  return SetBlocks(pass);
}

inline void AddTap(TapGroup& group, int64_t move, int64_t offset, int64_t kh,
                   int64_t kw, int64_t kernel_w, int64_t row) {
  group.move = move;
  group.taps[group.count++] = {offset, kh * kernel_w + kw, row};
}

// The groups of phase (a, b); rows of the tile are `row_floats` apart. Returns
// how many there are.
inline int64_t ListGroups(const GroupedPass& pass, int64_t row_floats,
                          int64_t a, int64_t b, TapGroup* groups) {
  for (int64_t g = 0; g < kGroups; ++g) groups[g] = TapGroup();
  const int64_t r = row_floats;
  if (pass.taps() == 1) {
    if (a == 0 && b == 0) AddTap(groups[0], 0, 0, 0, 0, 1, 0);
    return a == 0 && b == 0 ? 1 : 0;
  }
  if (pass.step == 2) {
    // Planes: odd rows odd columns, odd even, even odd, even even.
    const int64_t odd = (pass.block_rows + 1) * r, even = pass.block_rows * r;
    for (int64_t kh = 0; kh < 3; ++kh) {
      const int64_t at = kh == 1 ? 2 * odd : kh / 2 * r;
      const int64_t to_even = kh == 1 ? even : odd;
      const int64_t row = kh == 0 ? -1 : 0;
      AddTap(groups[0], 1, at, kh, 0, 3, row);
      AddTap(groups[1], 0, at + to_even, kh, 1, 3, row);
      AddTap(groups[1], 0, at, kh, 2, 3, row);
    }
    return 2;
  }
  if (pass.phases == 2) {
    // Row 2u + a: kernel row 1 meets row u (a = 0); 2 meets u, 0 meets u + 1.
    int64_t count = 0;
    for (int64_t kw = b == 0 ? 1 : 0; kw < 3; kw += 2, ++count) {
      const int64_t move = kw == 0 ? -1 : 0;
      AddTap(groups[count], move, 0, a == 0 ? 1 : 2, kw, 3, 0);
      if (a == 1) AddTap(groups[count], move, r, 0, kw, 3, 1);
    }
    return count;
  }
  for (int64_t g = 0; g < 3; ++g) {
    const int64_t kw = g == 0 ? 0 : g == 1 ? 2 : 1;
    const int64_t move = (1 - kw) * (pass.forward ? 1 : -1);
    for (int64_t i = 0; i < 3; ++i) {
      AddTap(groups[g], move, i * r, pass.forward ? i : 2 - i, kw, 3, i - 1);
    }
  }
  return 3;
}

}  // namespace thimble::kernels::conv
