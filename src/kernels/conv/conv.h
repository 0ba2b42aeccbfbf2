// SPDX-License-Identifier: Apache-2.0
//
// 2-D convolution of planar images (NCHW) without bias, and its two gradients,
// alone or fused with what stands around it in a network. Tensors are stored as
// f32, f16 or bf16 (images also as u8); arithmetic is f32, and a result is
// rounded once, to nearest even, when it is stored. Weights are [out_channels,
// in_channels, kernel_h, kernel_w], dense or sparse: of sparse ones, what is
// kept is all that is read, and their gradient is made of what is kept alone.
// Where dot products are on (dot/dot_form.h)
// and all tensors are bf16, values are multiplied in pairs: what the prologue
// makes is rounded to bf16 first, and denormals are zeros.
//
// Every output element is computed by one thread in one order that depends on
// the shape and the SIMD target only. 3x3 kernels of stride 1 may be computed
// by Winograd's products (winograd.h): an output's rounding error then depends
// on the 4x4 inputs around it. No aliasing between inputs and outputs, except
// where it says so.
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/context.h"
#include "kernels/grad_sink/grad_sink.h"
#include "kernels/norm/norm.h"
#include "kernels/tensor.h"
#include "thimble/sparsity.h"

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
  // Of weights that are sparse, what is kept as one; none where they are dense.
  std::optional<WeightBlock> blocks = std::nullopt;

  int64_t out_height() const {
    return (in_height + 2 * padding - kernel_h) / stride + 1;
  }
  int64_t out_width() const {
    return (in_width + 2 * padding - kernel_w) / stride + 1;
  }
};

// What the convolution reads: u = x * scale[c] + shift[c], in one fused
// multiply-add, and max(u, 0) with relu. Without a scale, x itself. Padding is
// zero in these values, not in x.
struct Conv2dInput {
  ConstTensor x;  // f32, f16, bf16 or u8
  const float* scale = nullptr;
  const float* shift = nullptr;
  bool relu = false;  // REQUIRES: a scale
};

// y[i, o, h, w] = sum over c, kh, kw of w[o, c, kh, kw] *
//     u[i, c, h*stride + kh - padding, w*stride + kw - padding] + residual
struct Conv2dOutput {
  Tensor to;
  // Same type (checked) and shape; may be `to`.
  ConstTensor residual = ConstTensor::None();
  // Both or none: mean and biased variance of y as stored, per channel.
  float* mean = nullptr;
  float* variance = nullptr;
};

// grad_x = the transposed map applied to grad_y. With x, the gradient goes on
// through relu(x * scale + shift): it is zeroed where that is not positive, and
// summed up, as stored, for the batch normalisation that scale and shift are:
//   grad_beta[c] = sum of grad, grad_gamma[c] = sum of grad*(x-mean)*inv_std.
struct Conv2dGradInputTarget {
  // Without data, with x: only the sums, as if it were stored in its type.
  Tensor to;
  ConstTensor x = ConstTensor::None();  // None: none of the following
  const float* scale = nullptr;
  const float* shift = nullptr;
  const float* mean = nullptr;
  const float* inv_std = nullptr;
  float* grad_gamma = nullptr;
  float* grad_beta = nullptr;
};

// With the sums known, the same gradient again, through relu(x * scale + shift)
// and on through the batch normalisation: to the bit what BatchNormGradRest
// makes of it as stored in the type of `to`, with the sums over all images of
// the call, plus the residual. In place on x or the residual where the types
// are the same.
struct Conv2dNormGradTarget {
  Tensor to;
  ConstTensor x;
  const float* scale = nullptr;
  const float* shift = nullptr;
  BatchNormGradSums sums;
  ConstTensor residual = ConstTensor::None();  // of the type of `to` (checked)
};

struct Conv2dGradWeightTarget {
  Tensor to;                // f32, f16 or bf16; None with pieces
  bool accumulate = false;  // adds to what is there
  // In place of `to`: takes the sums in pieces (kernels/grad_sink).
  const PieceSink* pieces = nullptr;
  // Of sparse weights: `to`, or the pieces, are the values that it keeps, one
  // after the other.
  const Pattern* pattern = nullptr;
};

// Scratch for any storage types, prologue and residual. `reducing`: with mean
// and variance, or with x; then the scratch depends on the number of images,
// because per-channel sums are kept apart for every kReductionPixels pixels
// and merged in index order.
inline constexpr int64_t kReductionPixels = 1024;
struct Conv2dReduction {
  bool reducing = false;
  int64_t images = 0;
};

Workspace Conv2dForwardWorkspace(const Conv2dShape& shape,
                                 const Conv2dReduction& reduction = {});
void Conv2dForward(const Conv2dShape& shape, int64_t images,
                   const Conv2dInput& x, const ConstTensor& w,
                   const Conv2dOutput& y, const KernelContext& context);

Workspace Conv2dGradInputWorkspace(const Conv2dShape& shape,
                                   const Conv2dReduction& reduction = {});
void Conv2dGradInput(const Conv2dShape& shape, int64_t images,
                     const ConstTensor& grad_y, const ConstTensor& w,
                     const Conv2dGradInputTarget& grad_x,
                     const KernelContext& context);

// Scratch: Conv2dGradInputWorkspace without a reduction.
void Conv2dNormGrad(const Conv2dShape& shape, int64_t images,
                    const ConstTensor& grad_y, const ConstTensor& w,
                    const Conv2dNormGradTarget& grad_x,
                    const KernelContext& context);

// grad_w = sum over images and pixels: images in index order, each as partial
// sums over blocks of rows that depend on the shape only. Zeros for no images.
// The sums are the same in pieces, for which the scratch is the second one.
Workspace Conv2dGradWeightWorkspace(const Conv2dShape& shape);
Workspace Conv2dGradPiecesWorkspace(const Conv2dShape& shape);
void Conv2dGradWeight(const Conv2dShape& shape, int64_t images,
                      const Conv2dInput& x, const ConstTensor& grad_y,
                      const Conv2dGradWeightTarget& grad_w,
                      const KernelContext& context);

}  // namespace thimble::kernels
