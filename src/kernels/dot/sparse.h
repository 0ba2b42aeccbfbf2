// SPDX-License-Identifier: Apache-2.0
//
// Sparse convolutions of bf16 by dot products: what sparse_pass.h describes.
// Internal to convolutions.
//
// Weights are read from their index a block of outputs at a time, as many as
// fit into the scratch, and all tiles of a thread are passed over for it. The
// gradient of the input needs the index transposed, which is made in scratch as
// well. Threads share tiles or outputs, whichever takes less work in all. No
// bits depend on that, nor on how dense the weights are, but on what they keep.
//
// Of one output, sums are made chunk of channels by chunk. In a chunk, pairs of
// kept weights follow each other in the order of their columns (for the
// gradient of the input: tap by tap, in the order of outputs), in three sums,
// for what lies one position before, behind, and there. The second one begins
// with zero as the first; both are moved, and what was summed up before is
// added to the first one, the result to the second one; the third goes on with
// that. An odd weight is paired with zeros.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/context.h"
#include "kernels/conv/conv.h"
#include "kernels/conv/operand.h"
#include "kernels/dot/sparse_pass.h"
#include "kernels/dot/winograd.h"

namespace thimble::kernels::dot {

// A thread's scratch.
struct SparseScratch {
  SparseScratch(const SparsePass& pass, std::byte* memory) {
    const auto take = [&](int64_t bytes) {
      std::byte* at = memory;
      memory += conv::RoundUp(bytes, kLineBytes);
      return at;
    };
    tile = take(pass.tile_bytes());
    columns = reinterpret_cast<uint16_t*>(take(pass.column_bytes()));
    values = columns + pass.row_columns();
    lists = reinterpret_cast<uint32_t*>(take(pass.list_bytes()));
    starts = reinterpret_cast<uint32_t*>(take(pass.start_bytes()));
    row_at = reinterpret_cast<uint16_t*>(take(pass.cursor_bytes()));
    chunk_sums = reinterpret_cast<float*>(take(pass.chunk_bytes()));
    sums = reinterpret_cast<float*>(take(pass.sum_bytes()));
    partials = reinterpret_cast<conv::Partial*>(take(pass.partial_bytes()));
    records = reinterpret_cast<uint32_t*>(take(pass.record_bytes()));
  }

  std::byte* tile;          // [plane][channel][line], then lines of zeros; or
                            // weights of some channels, [column][output]
  uint16_t* columns;        // of a row of the index, or a part of it
  uint16_t* values;         // of these, where they are not in their order
  uint32_t* lists;          // [slot]: records of a chunk
  uint32_t* starts;         // [output][chunk][slot]: where pairs begin
  uint16_t* row_at;         // of each row of the index: the next entry
  float* chunk_sums;        // [output][phase][row][line]
  float* sums;              // [phase][segment][row][column], then whole rows
  conv::Partial* partials;  // of a block of outputs
  uint32_t* records;        // pairs of them: two offsets, two weights
};

// Where kept weights of one call are.
struct SparseWeights {
  const Pattern& pattern;
  const uint16_t* values;
};

// Segments of a tile: their images and first rows of positions. The last tile
// is one of half the height and twice the segments, where there is not enough
// left for a whole one.
struct SparseSegments {
  int64_t count = 0;
  int64_t height = 0;  // rows of positions
  int64_t image[kMostSegments] = {};
  int64_t row[kMostSegments] = {};
};

inline SparseSegments SegmentsOf(const SparsePass& pass, int64_t images,
                                 int64_t tile) {
  const int64_t first = tile * pass.segments();
  const int64_t left = std::min(pass.segments(), images * pass.bands() - first);
  const bool halved = pass.tile.height == 8 && 2 * left <= pass.segments();
  const int64_t parts = halved ? 2 : 1;
  SparseSegments segments;
  segments.count = parts * left;
  segments.height = pass.tile.height / parts;
  for (int64_t g = 0; g < segments.count; ++g) {
    const int64_t segment = first + g / parts;
    segments.image[g] = segment / pass.bands();
    segments.row[g] =
        segment % pass.bands() * pass.tile.height + g % parts * segments.height;
  }
  return segments;
}

// What the sums of a phase of some outputs are made of, and where they go.
struct SparseSum {
  const std::byte* slots[kSlots];  // where offsets begin
  const uint32_t* pairs;           // of records
  const uint32_t* starts;          // of three slots, and the end
  int64_t next_starts;             // from one output to the next
  int64_t outputs;
  float* chunk_sums;
  bool first;  // chunk
  bool last;
  int64_t height;
  float* sums;  // null: to bf16, where segments begin
  uint16_t* to[kMostSegments];
  int64_t next_to[kMostSegments];  // from one output to the next
};

// Scratch of the way; nothing where there is none.
inline size_t SparseBytes(const Conv2dShape& shape, bool forward) {
  SparsePass pass;
  if (!MakeSparsePass(shape, forward, pass)) return 0;
  return static_cast<size_t>(pass.Bytes());
}

// Forward pass or gradient of the input, if the weights are sparse, all tensors
// are bf16 and the shape has this way; else false. REQUIRES: dot products are
// on; SparseBytes of scratch per thread.
bool RunSparse(const Conv2dShape& shape, bool forward, int64_t images,
               const Conv2dInput& input, const ConstTensor& weights,
               const conv::Sink& sink, RowWriter write_row,
               const KernelContext& context);

}  // namespace thimble::kernels::dot
