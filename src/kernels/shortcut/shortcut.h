// SPDX-License-Identifier: Apache-2.0
//
// The identity shortcut across a change of shape: every stride-th row and
// column of each plane, then channels of zeros behind the existing ones.
// Tensors are planar, both of one float type; values keep their bits. No
// aliasing, no scratch.
#pragma once

#include <cstdint>

#include "kernels/context.h"
#include "kernels/tensor.h"

namespace thimble::kernels {

struct ShortcutShape {
  int64_t in_channels = 1;
  int64_t height = 1;
  int64_t width = 1;
  int64_t out_channels = 1;  // fewer than in_channels: the last are dropped
  int64_t stride = 1;

  int64_t out_height() const { return (height + stride - 1) / stride; }
  int64_t out_width() const { return (width + stride - 1) / stride; }
};

// y[i, c, h, w] = c < in_channels ? x[i, c, h*stride, w*stride] : 0
void Shortcut(const ShortcutShape& shape, int64_t images, ConstTensor x,
              Tensor y, const KernelContext& context);

// grad_x: grad_y's first in_channels planes at the sampled places, 0 elsewhere.
void ShortcutGrad(const ShortcutShape& shape, int64_t images,
                  ConstTensor grad_y, Tensor grad_x,
                  const KernelContext& context);

}  // namespace thimble::kernels
