// SPDX-License-Identifier: Apache-2.0
//
// Where strips lie in tensors of bf16, for both drivers of dot/winograd.h.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/conv/conv.h"
#include "kernels/conv/winograd.h"
#include "kernels/dot/winograd_kernels.h"
#include "kernels/dot/winograd_pass.h"
#include "kernels/tensor.h"

namespace thimble::kernels::dot {

inline bool IsBf16(const ConstTensor& tensor) {
  return tensor.dtype() == DType::kBF16 && !tensor.is_in_blocks();
}

// Where element `offset` lies, if there is one.
inline const uint16_t* Bf16At(const ConstTensor& tensor, int64_t offset) {
  if (!tensor.is_there()) return nullptr;
  return tensor.halves(DType::kBF16) + offset;
}
inline uint16_t* Bf16At(const Tensor& tensor, int64_t offset) {
  if (!tensor.is_there()) return nullptr;
  return tensor.halves(DType::kBF16) + offset;
}

// Strip `strip` of an image. A row of tiles is two rows of pixels.
inline StripRows RowsOf(const conv::StripGrid& grid, int64_t strip) {
  StripRows rows;
  rows.width = grid.width;
  const int64_t tiles = grid.width / 2;  // of a piece
  const int64_t pieces = kTiles / tiles;
  const uint32_t piece_lanes = (1u << tiles) - 1;
  for (int64_t k = 0; k < 4; ++k) {
    for (int64_t i = 0; i < pieces; ++i) {
      const int64_t row = 2 * (strip * pieces + i) + k - 1;
      const int64_t there = std::clamp<int64_t>(row, 0, grid.height - 1);
      rows.offset[k][i] = there * grid.width;
      if (row == there) rows.lanes[k] |= piece_lanes << (i * tiles);
    }
  }
  return rows;
}

// Its planes, which bring into the cache what the strip `ahead` of it reads.
inline Planes PlanesOf(const conv::StripGrid& grid, const Conv2dInput& input,
                       int64_t strip, int64_t channel, int64_t ahead) {
  const int64_t image_strips = grid.image_strips();
  const int64_t plane = grid.height * grid.width;
  const int64_t image = strip / image_strips;
  Planes planes;
  planes.from = input.x.halves(DType::kBF16) + image * grid.channels * plane;
  planes.plane = plane;
  // A strip reads one row beyond its own pixels, and lines of the cache are 32
  // pixels.
  const int64_t next_image = (strip + ahead) / image_strips;
  const int64_t next = strip + ahead - next_image * image_strips;
  planes.next = (next_image - image) * grid.channels * plane +
                next * conv::kStripPixels + (next > 0 ? grid.width + 16 : 0);
  planes.scale = input.scale;
  planes.shift = input.shift;
  planes.relu = input.scale != nullptr && input.relu;
  return planes.From(channel);
}

inline BatchStrip StripOf(const conv::StripGrid& grid, const Conv2dInput& input,
                          int64_t strip, int64_t channel, int64_t ahead = 1) {
  return {.rows = RowsOf(grid, strip % grid.image_strips()),
          .planes = PlanesOf(grid, input, strip, channel, ahead)};
}

}  // namespace thimble::kernels::dot
