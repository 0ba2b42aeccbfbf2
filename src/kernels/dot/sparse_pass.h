// SPDX-License-Identifier: Apache-2.0
//
// Sparse convolutions of bf16 by dot products (dot_form.h): forward pass and
// gradient of the input, 3x3 with padding 1 and 1x1 without, strides 1 and 2,
// where rows of positions are 8, 16 or 32 wide. Pure functions of the shape.
// Internal to convolutions.
//
// A tile holds some channels of 32 positions side by side (a line), which are
// segments of as many images, or of as many bands of rows of one, as fit into
// it. A line is one vector of bf16. A pair is two kept weights of one output at
// whatever channels and kernel rows; their lines are zipped as they are loaded.
// Kernel columns do not move what is loaded but the f32 sums: there is one list
// of pairs, a slot, for what lies one position before, one for what lies one
// behind, and one for the rest. So every load is a whole line.
//
// With stride 2, even and odd columns are planes of their own. The gradient of
// the input of stride 2 is made of four phases, as direct.h has them, each with
// slots of its own.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/conv/conv.h"
#include "kernels/conv/operand.h"
#include "kernels/conv/tile.h"
#include "kernels/dot/sparse_tile.h"

namespace thimble::kernels::dot {

// A thread's scratch, less for large images, whose sums over a batch of 100
// take up to 25 KiB beside it; of it, a tile in the second-level cache that the
// first one mostly holds.
inline int64_t SparseRoom(const Conv2dShape& s) {
  return s.in_height * s.in_width > 256 ? int64_t{102} * 1024
                                        : int64_t{112} * 1024;
}
inline constexpr int64_t kSparseTileBytes = int64_t{48} * 1024;
// Outputs whose pairs are in scratch at most.
inline constexpr int64_t kSparseOutputs = 64;
inline constexpr int64_t kChunkedOutputs = 32;  // of one phase, with chunks
// Outputs whose sums are there at once, before they are written.
inline constexpr int64_t kSumOutputs = 4;

struct SparsePass {
  Conv2dShape shape;
  bool forward = true;
  int64_t channels = 0;  // summed over
  int64_t outputs = 0;
  int64_t src_height = 0;
  int64_t src_width = 0;
  int64_t rows = 0;  // of positions
  int64_t cols = 0;
  int64_t step = 1;    // source pixels from one position to the next
  int64_t phases = 1;  // of rows and columns together: 1 or 4
  SparseTile tile;
  SparseTap taps[kMostTaps] = {};
  int64_t slot_plane[kSlots] = {};
  bool behind_moves = true;  // else the slot is at the position itself
  int64_t chunk = 0;         // channels of a tile
  int64_t block = 0;         // outputs in scratch at most
  int64_t records = 0;       // kept weights in scratch at most

  int64_t tap_count() const { return shape.kernel_h * shape.kernel_w; }
  int64_t chunks() const { return conv::CeilDiv(channels, chunk); }
  int64_t slots() const { return phases * kSlots; }
  int64_t scale() const { return phases == 1 ? 1 : 2; }
  int64_t out_height() const { return scale() * rows; }
  int64_t out_width() const { return scale() * cols; }
  int64_t segments() const { return kLinePixels / cols; }  // of a tile
  int64_t bands() const { return rows / tile.height; }     // of an image
  int64_t positions() const { return tile.height * kLinePixels; }

  // Bytes of a thread's scratch: tile and lines of zeros, columns of a row of
  // the index with their values, lists of it, where lists begin, where rows of
  // the index go on, sums of chunks, sums, sums over images, records.
  int64_t tile_bytes() const {
    return tile.bytes(chunk) + tile.height * kLineBytes;
  }
  int64_t row_columns() const {
    const int64_t inputs = forward ? channels : block;
    return conv::RoundUp(inputs * tap_count() + 32, 32);
  }
  int64_t column_bytes() const {
    return row_columns() * (shape.blocks->values() == 1 ? 2 : 4);
  }
  int64_t list_records() const { return conv::RoundUp(chunk * 3 + 32, 16); }
  int64_t list_bytes() const {
    return forward ? kSlots * list_records() * 4 : 0;
  }
  int64_t start_count() const {
    return conv::RoundUp(block * chunks() * slots() + 1, 16);
  }
  int64_t start_bytes() const { return start_count() * 4; }
  // Of dense weights in the tile's place: an odd number of lines, so that
  // columns do not meet in the cache. And how many channels of them fit.
  int64_t dense_pitch() const {
    const int64_t lines = conv::CeilDiv(channels, kLinePixels);
    return (lines / 2 * 2 + 1) * kLinePixels;
  }
  int64_t dense_channels() const {
    return tile_bytes() / (tap_count() * dense_pitch() * 2);
  }
  int64_t cursor_bytes() const {
    return forward ? 0 : conv::RoundUp(channels * 2, kLineBytes);
  }
  int64_t chunk_bytes() const {
    return chunks() == 1 ? 0 : block * phases * positions() * 4;
  }
  // Of one output, and whole rows of one.
  int64_t output_sums() const { return phases * positions(); }
  int64_t sum_bytes() const {
    const int64_t joined = phases == 1 ? 0 : output_sums();
    return (kSumOutputs * output_sums() + joined) * 4;
  }
  int64_t partial_bytes() const {
    return conv::RoundUp(block * static_cast<int64_t>(sizeof(conv::Partial)),
                         kLineBytes);
  }
  int64_t fixed_bytes() const {
    return tile_bytes() + column_bytes() + list_bytes() + start_bytes() +
           cursor_bytes() + chunk_bytes() + sum_bytes() + partial_bytes();
  }
  int64_t record_bytes() const { return (records + 16) * 4; }
  int64_t Bytes() const { return fixed_bytes() + record_bytes(); }
  // One output's, and what completes its pairs.
  int64_t output_records() const {
    return channels * tap_count() + chunks() * slots();
  }
};

// What output positions read, along one axis: `phase` of the output, pixels
// from its position on.
struct SparseReach {
  int64_t phase;
  int64_t at;
};
inline SparseReach ReachOf(const SparsePass& pass, int64_t kernel, int64_t k) {
  const int64_t padding = kernel / 2;
  if (pass.forward) return {0, k - padding};
  if (pass.shape.stride == 1) return {0, padding - k};
  const int64_t phase = (padding + k) % 2;
  return {phase, (phase + padding - k) / 2};
}

inline void SetTile(int64_t height, SparsePass& pass) {
  SparseTile& tile = pass.tile;
  tile.height = height;
  const bool high = pass.shape.kernel_h == 3;
  tile.planes = high && pass.step == 2 ? 2 : 1;
  tile.lines = 0;
  // First the rows that begin with that of the position; then, with step 2, the
  // odd ones.
  const int64_t first = high && pass.phases == 1 && pass.step == 1 ? -1 : 0;
  const int64_t past = high && pass.step == 1 ? 1 : 0;
  for (int64_t r = first; r < height + past; ++r) {
    tile.row_of[tile.lines++] = pass.step * r;
  }
  if (tile.planes == 2) {
    for (int64_t r = 0; r <= height; ++r) {
      tile.row_of[tile.lines++] = 2 * r - 1;
    }
  }
}

inline void SetTaps(SparsePass& pass) {
  const Conv2dShape& s = pass.shape;
  pass.behind_moves = pass.step == 1;
  if (pass.tile.planes == 2) {
    pass.slot_plane[kSlotBefore] = pass.slot_plane[kSlotBehind] = 1;
  }
  const int64_t* rows = pass.tile.row_of;
  for (int64_t t = 0; t < pass.tap_count(); ++t) {
    const SparseReach h = ReachOf(pass, s.kernel_h, t / s.kernel_w);
    const SparseReach w = ReachOf(pass, s.kernel_w, t % s.kernel_w);
    const int64_t slot =
        w.at < 0 ? kSlotBefore : (w.at > 0 ? kSlotBehind : kSlotHere);
    pass.taps[t] = {
        static_cast<int32_t>((2 * h.phase + w.phase) * kSlots + slot),
        static_cast<int32_t>(std::find(rows, rows + pass.tile.lines, h.at) -
                             rows)};
  }
}

// Channels of a tile, outputs of a block, and as many records as there is room
// for.
inline bool SetSparseBlocks(SparsePass& pass) {
  const int64_t most =
      std::max<int64_t>(1, kSparseTileBytes / pass.tile.bytes(1));
  const int64_t inputs = pass.shape.blocks->inputs;
  const int64_t unit = pass.forward ? inputs : pass.shape.blocks->outputs;
  const int64_t chunks = conv::CeilDiv(pass.channels, most);
  pass.chunk = conv::RoundUp(conv::CeilDiv(pass.channels, chunks), unit);
  pass.block = std::min(pass.outputs, pass.chunks() == 1
                                          ? kSparseOutputs
                                          : kChunkedOutputs / pass.phases);
  const int64_t left = SparseRoom(pass.shape) - pass.fixed_bytes();
  pass.records = left / 4 - 16;
  const int64_t together = pass.forward ? 1 : inputs;
  if (!pass.forward && pass.dense_channels() < together) return false;
  return pass.block >= together &&
         pass.records >= pass.output_records() * together;
}

// False where there is no such way.
inline bool MakeSparsePass(const Conv2dShape& s, bool forward,
                           SparsePass& pass) {
  const bool is_3x3 = s.kernel_h == 3 && s.kernel_w == 3 && s.padding == 1;
  const bool is_1x1 = s.kernel_h == 1 && s.kernel_w == 1 && s.padding == 0;
  if (!s.blocks.has_value() || s.stride > 2 || (!is_3x3 && !is_1x1) ||
      s.in_height % s.stride != 0 || s.in_width % s.stride != 0 ||
      s.in_channels * s.kernel_h * s.kernel_w > UINT16_MAX) {
    return false;
  }
  pass = {};
  pass.shape = s;
  pass.forward = forward;
  pass.channels = forward ? s.in_channels : s.out_channels;
  pass.outputs = forward ? s.out_channels : s.in_channels;
  pass.src_height = forward ? s.in_height : s.out_height();
  pass.src_width = forward ? s.in_width : s.out_width();
  pass.rows = s.out_height();
  pass.cols = s.out_width();
  pass.step = forward ? s.stride : 1;
  pass.phases = forward || s.stride == 1 ? 1 : 4;
  if (pass.cols != 8 && pass.cols != 16 && pass.cols != 32) return false;
  if (pass.rows % 4 != 0) return false;
  SetTile(8, pass);
  if (pass.rows % 8 != 0 || pass.tile.bytes(pass.channels) > kSparseTileBytes) {
    SetTile(4, pass);
  }
  // Sums over images are those of whole tiles.
  const int64_t images =
      conv::ChunkImages(pass.out_height() * pass.out_width());
  if (images * pass.bands() % pass.segments() != 0) return false;
  SetTaps(pass);
  return SetSparseBlocks(pass);
}

}  // namespace thimble::kernels::dot
