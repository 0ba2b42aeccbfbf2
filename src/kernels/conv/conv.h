// SPDX-License-Identifier: Apache-2.0
//
// 2-D convolution of planar images (NCHW, f32) without bias, and its two
// gradients. Weights are [out_channels, in_channels, kernel_h, kernel_w]. Every
// output element is computed by one thread in one order that depends on the
// shape and the SIMD target only. No aliasing between inputs and outputs.
#pragma once

#include <cstdint>

#include "kernels/context.h"

namespace thimble::kernels {

struct Conv2dShape {
  int64_t in_channels = 1;
  int64_t in_height = 1;
  int64_t in_width = 1;
  int64_t out_channels = 1;
  int64_t kernel_h = 1;
  int64_t kernel_w = 1;
  int64_t stride = 1;
  int64_t padding = 0;  // zeros on each side

  int64_t out_height() const {
    return (in_height + 2 * padding - kernel_h) / stride + 1;
  }
  int64_t out_width() const {
    return (in_width + 2 * padding - kernel_w) / stride + 1;
  }
};

// y[i, o, h, w] = sum over c, kh, kw of w[o, c, kh, kw] *
//     x[i, c, h*stride + kh - padding, w*stride + kw - padding]
// in the index order of (c, kh, kw).
Workspace Conv2dForwardWorkspace(const Conv2dShape& shape);
void Conv2dForward(const Conv2dShape& shape, int64_t images, const float* x,
                   const float* w, float* y, const KernelContext& context);

// grad_x = the transposed map applied to grad_y.
Workspace Conv2dGradInputWorkspace(const Conv2dShape& shape);
void Conv2dGradInput(const Conv2dShape& shape, int64_t images,
                     const float* grad_y, const float* w, float* grad_x,
                     const KernelContext& context);

// grad_w = sum over images and pixels: images in index order, each as partial
// sums over blocks of rows that depend on the shape only. Zeros for no images.
Workspace Conv2dGradWeightWorkspace(const Conv2dShape& shape);
void Conv2dGradWeight(const Conv2dShape& shape, int64_t images, const float* x,
                      const float* grad_y, float* grad_w,
                      const KernelContext& context);

}  // namespace thimble::kernels
