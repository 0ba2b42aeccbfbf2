// SPDX-License-Identifier: Apache-2.0
//
// Pooling of planar images [images, channels, height, width] with square
// windows. Tensors are stored as f32, f16 or bf16, both of a call in the same
// type; sums are f32 (or f64 where said), and a value is rounded once, to
// nearest even, when it is written. No aliasing, no scratch; a plane belongs to
// one thread. Gradients add up what an input gets from each of its windows in
// an order that depends on the shape alone.
#pragma once

#include <cstdint>

#include "kernels/context.h"
#include "kernels/tensor.h"

namespace thimble::kernels {

struct PoolShape {
  int64_t channels = 1;
  int64_t height = 1;
  int64_t width = 1;
  int64_t kernel = 2;  // at most kMaxPoolKernel
  int64_t stride = 2;
  int64_t padding = 0;  // at most kernel / 2

  int64_t out_height() const {
    return (height + 2 * padding - kernel) / stride + 1;
  }
  int64_t out_width() const {
    return (width + 2 * padding - kernel) / stride + 1;
  }
};

// The winner's place in its window must fit a byte.
inline constexpr int64_t kMaxPoolKernel = 16;

// y = the largest value in the window (padding never wins; a NaN wins).
// Where `winner` is not null it gets kh * kernel + kw of the first maximum.
void MaxPool(const PoolShape& shape, int64_t images, ConstTensor x, Tensor y,
             uint8_t* winner, const KernelContext& context);
// grad_x: zero but for each window's winner, which gets grad_y added.
void MaxPoolGrad(const PoolShape& shape, int64_t images, const uint8_t* winner,
                 ConstTensor grad_y, Tensor grad_x,
                 const KernelContext& context);

// y = sum over the window / kernel² (padding counts as zeros).
void AveragePool(const PoolShape& shape, int64_t images, ConstTensor x,
                 Tensor y, const KernelContext& context);
void AveragePoolGrad(const PoolShape& shape, int64_t images, ConstTensor grad_y,
                     Tensor grad_x, const KernelContext& context);

// y[i, c] = mean of the plane's pixels: f64 sum of f32 sums over at most
// kPoolPiece pixels in at least kPoolChains interleaved chains.
inline constexpr int64_t kPoolPiece = 1024;
inline constexpr int64_t kPoolChains = 16;
void GlobalAveragePool(int64_t images, int64_t channels, int64_t pixels,
                       ConstTensor x, Tensor y, const KernelContext& context);
void GlobalAveragePoolGrad(int64_t images, int64_t channels, int64_t pixels,
                           ConstTensor grad_y, Tensor grad_x,
                           const KernelContext& context);

}  // namespace thimble::kernels
