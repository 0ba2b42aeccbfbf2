// SPDX-License-Identifier: Apache-2.0
//
// The gradient of sparse weights in bf16 by dot products (dot_form.h), at what
// they keep alone: the shapes of sparse_pass.h. Pure functions of the shape.
// Internal to convolutions.
//
// Lanes are pairs of neighbouring positions of a line of x, and of grad_y in
// registers, which kernel columns move. Of one weight and one tile,
// rows of positions are summed up in one chain, then the sixteen lanes as
//     q[k] = (l[4k] + l[4k+2]) + (l[4k+1] + l[4k+3]),
//     (q[0] + q[1]) + (q[2] + q[3]);
// tiles are added in the order of images.
//
// A thread works on a range of kept blocks, as many at a time as fit into its
// scratch, and passes over all tiles for them. Ranges are whole pieces
// (kernels/grad_sink), so that a gradient in pieces has the same sums.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>

#include "kernels/context.h"
#include "kernels/conv/conv.h"
#include "kernels/dot/sparse_pass.h"

namespace thimble::kernels::dot {

// Lists of one slot are filled up to as many weights: zeros are a line too.
inline constexpr int64_t kListUnit = 4;
inline constexpr int64_t kSparseRows = 128;  // outputs in scratch at most

struct SparseWeightPass {
  SparsePass tiles;     // of the forward pass: x
  int64_t records = 0;  // in scratch at most

  const Conv2dShape& shape() const { return tiles.shape; }
  int64_t lists() const { return tiles.chunks() * kSlots; }  // of an output
  // Blocks of weights that are whole pieces of a gradient.
  int64_t unit() const {
    constexpr int64_t kPiece = ConstTensor::kBlock;
    return kPiece / std::gcd(kPiece, shape().blocks->values());
  }

  // Bytes of a thread's scratch: tile and lines of zeros, or all sums in their
  // order and one that is none; lines of grad_y; columns of a row of the index
  // with their places; lists of it; where lists begin; records; sums.
  int64_t tile_bytes() const { return tiles.tile_bytes() + kLineBytes; }
  int64_t grad_bytes() const { return tiles.tile.height * kLineBytes; }
  int64_t column_bytes() const { return tiles.row_columns() * 4; }
  int64_t list_bytes() const { return tiles.list_bytes(); }
  int64_t start_bytes() const {
    return conv::RoundUp((kSparseRows * lists() + 1) * 4, kLineBytes);
  }
  int64_t fixed_bytes() const {
    return tile_bytes() + grad_bytes() + column_bytes() + list_bytes() +
           start_bytes();
  }
  int64_t Bytes() const { return fixed_bytes() + 2 * (records + 16) * 4; }
};

// False where there is no such way.
inline bool MakeSparseWeightPass(const Conv2dShape& s, SparseWeightPass& pass) {
  SparsePass& tiles = pass.tiles;
  if (!MakeSparsePass(s, true, tiles)) return false;
  // What is added up at the end of a line is little beside eight rows.
  if (tiles.rows % 8 == 0) SetTile(8, tiles);
  SetTaps(tiles);
  const int64_t most =
      std::max<int64_t>(1, kSparseTileBytes / tiles.tile.bytes(1));
  const int64_t chunks = conv::CeilDiv(tiles.channels, most);
  tiles.chunk =
      conv::RoundUp(conv::CeilDiv(tiles.channels, chunks), s.blocks->inputs);
  const int64_t left = (SparseRoom(s) - pass.fixed_bytes()) / 8 - 16;
  pass.records = std::min(left, tiles.tile_bytes() / 4) / 64 * 64;
  // One unit always fits, where each weight of it fills a list.
  return pass.records >= kListUnit * pass.unit() * s.blocks->values();
}

// Scratch of the way, whether the gradient is stored or in pieces; nothing
// where there is none.
inline size_t SparseWeightBytes(const Conv2dShape& shape) {
  SparseWeightPass pass;
  if (!shape.blocks.has_value() || !MakeSparseWeightPass(shape, pass)) return 0;
  return static_cast<size_t>(pass.Bytes());
}

// A thread's scratch.
struct SparseWeightScratch {
  SparseWeightScratch(const SparseWeightPass& pass, std::byte* memory) {
    const auto take = [&](int64_t bytes) {
      std::byte* at = memory;
      memory += conv::RoundUp(bytes, kLineBytes);
      return at;
    };
    tile = take(pass.tile_bytes());
    ordered = reinterpret_cast<float*>(tile);
    grad = take(pass.grad_bytes());
    columns = reinterpret_cast<uint16_t*>(take(pass.column_bytes()));
    row_places = columns + pass.tiles.row_columns();
    lists = reinterpret_cast<uint32_t*>(take(pass.list_bytes()));
    starts = reinterpret_cast<uint32_t*>(take(pass.start_bytes()));
    offsets = reinterpret_cast<uint16_t*>(take((pass.records + 16) * 4));
    places = offsets + pass.records + 16;
    sums = reinterpret_cast<float*>(take((pass.records + 16) * 4));
  }

  std::byte* tile;
  float* ordered;
  std::byte* grad;
  uint16_t* columns;  // of a row of the index
  uint16_t* row_places;
  uint32_t* lists;
  uint32_t* starts;   // [output][chunk][slot]: where records begin
  uint16_t* offsets;  // of records, into the tile
  uint16_t* places;   // of them, among the sums of the range
  float* sums;        // of them
};

// Kept blocks in scratch: [begin, end) of the matrix's, of rows from `row` on,
// whose first one is `first`.
struct KeptRange {
  int64_t begin;
  int64_t end;
  int64_t row;
  int64_t first;
};

// The gradient, if the weights are sparse, x and grad_y are bf16 and the shape
// has this way; else false. REQUIRES: dot products are on; SparseWeightBytes of
// scratch per thread.
bool RunSparseWeight(const Conv2dShape& shape, int64_t images,
                     const Conv2dInput& x, const ConstTensor& grad_y,
                     const Conv2dGradWeightTarget& grad_w,
                     const KernelContext& context);

}  // namespace thimble::kernels::dot
