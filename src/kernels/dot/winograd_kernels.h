// SPDX-License-Identifier: Apache-2.0
//
// The parts of dot/winograd.h that are compiled once per build, as
// dot/winograd.cc calls them. A FlushDenormals must be alive around them.
#pragma once

#include <cstdint>

#include "kernels/dot/dot_form.h"

namespace thimble::kernels::dot {

// Where a strip's tiles lie in a plane: row k of all its tiles, k being 0 for
// the row above the first output of each, is up to four pieces of `width`
// pixels, from element offset[k][piece] on; -1 where there is no such row.
struct StripRows {
  int64_t width = 0;
  int64_t offset[4][4] = {};
};

// Planes that are read, from the first of them on. `scale` and `shift` (both or
// none) are of the same channels.
struct Planes {
  const uint16_t* from = nullptr;
  int64_t plane = 0;  // elements
  const float* scale = nullptr;
  const float* shift = nullptr;
  bool relu = false;
};

struct WinogradKernels {
  // Slice `slice` of a strip: [pair of channels][column][tile], in pairs.
  void (*transform_input)(const StripRows& rows, const Planes& planes,
                          int64_t channels, int64_t slice, uint32_t* to);
  // The same as [column][channel][word of tiles], where a channel's tiles lie
  // `stride` words from the next one's.
  void (*transform_tiles)(const StripRows& rows, const Planes& planes,
                          int64_t channels, int64_t slice, int64_t stride,
                          uint32_t* to);
  // Slice `slice` of 16 outputs: [pair of channels][column][output]. Weights
  // lie as the pass says; flipped in both directions where it is not forward.
  void (*transform_weights)(const uint16_t* from, int64_t output_weights,
                            int64_t channel_weights, int64_t channels,
                            int64_t slice, bool forward, uint32_t* to);
  // Adds the products of a slice to sums[output][row][column][tile] of 16
  // outputs; `first`: of the first channels.
  void (*multiply)(const uint32_t* tiles, const uint32_t* weights,
                   int64_t channels, int64_t slice, bool first, float* sums);
  // One output's sums in the order of pixels: as bf16, or as they are.
  void (*round_pixels)(int64_t width, const float* sums, uint16_t* to);
  void (*order_pixels)(int64_t width, const float* sums, float* to);

  // grad_y of `outputs` planes: [row of a tile][pair of tiles][output][tile],
  // words of two pixels.
  void (*transpose_grad)(const StripRows& rows, const Planes& planes,
                         int64_t outputs, uint32_t* to);
  // Slice `slice` of that: [column][pair of tiles][output], in pairs, where a
  // column lies `stride` words from the next one. A's last row and column are
  // -1, for which 1 stands here; fold has the sign.
  void (*transform_grad)(const uint32_t* from, int64_t outputs, int64_t slice,
                         int64_t stride, uint32_t* to);
  // Adds products over `pairs` pairs of tiles to the sums of one column,
  // [channel][16][output]. Channels come `stride` words apart.
  void (*multiply_grad)(const uint32_t* grad, const uint32_t* tiles,
                        int64_t outputs, int64_t channels, int64_t stride,
                        int64_t pairs, float* sums);
  // [channel][slice][column][output] to [channel][tap][output], in place.
  void (*fold)(int64_t outputs, int64_t channels, float* line, float* sums);
};

}  // namespace thimble::kernels::dot
