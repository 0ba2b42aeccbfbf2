// SPDX-License-Identifier: Apache-2.0
//
// Where strips lie in tensors of bf16, for both drivers of dot/winograd.h.
#pragma once

#include <cstdint>

#include "kernels/conv/conv.h"
#include "kernels/conv/winograd.h"
#include "kernels/dot/winograd_kernels.h"
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
  const int64_t first = strip * (conv::kStripPixels / grid.width);
  for (int64_t k = 0; k < 4; ++k) {
    for (int64_t i = 0; i < 4; ++i) {
      const int64_t row = first + 2 * i + k - 1;
      const bool exists = row >= 0 && row < grid.height;
      rows.offset[k][i] = exists ? row * grid.width : -1;
    }
  }
  return rows;
}

// Channels from `channel` on, of the image of strip `strip` of the batch.
inline Planes PlanesOf(const conv::StripGrid& grid, const Conv2dInput& input,
                       int64_t strip, int64_t channel) {
  const int64_t plane = grid.height * grid.width;
  const int64_t image = strip / grid.image_strips();
  Planes planes;
  planes.from =
      input.x.halves(DType::kBF16) + (image * grid.channels + channel) * plane;
  planes.plane = plane;
  if (input.scale != nullptr) {
    planes.scale = input.scale + channel;
    planes.shift = input.shift + channel;
    planes.relu = input.relu;
  }
  return planes;
}

}  // namespace thimble::kernels::dot
