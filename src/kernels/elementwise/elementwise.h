// SPDX-License-Identifier: Apache-2.0
//
// Element-by-element kernels and their gradients. Tensors are stored as f32,
// f16 or bf16, those of one call in the same type unless said; biases and their
// gradients are f32. Arithmetic is f32, and a value is rounded once, to nearest
// even, when it is written. Counts are elements. `y` may lie where an input of
// the same size and type does wherever the comment says "in place". Each output
// element depends on one position of the inputs, so results do not depend on
// the thread count. No scratch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/context.h"
#include "kernels/tensor.h"

namespace thimble::kernels {

// y = a + b, each of any float type. In place on a or b.
void Add(int64_t n, ConstTensor a, ConstTensor b, Tensor y,
         const KernelContext& context);

// y = x, each of any float type; the same bits where the types are the same.
// No aliasing.
void Copy(int64_t n, ConstTensor x, Tensor y, const KernelContext& context);

// Whether no element is infinite or NaN, of any float type or in blocks, where
// such an element makes its block's scale NaN.
bool AllFinite(int64_t n, ConstTensor values, const KernelContext& context);

// y = max(x, 0); NaN stays NaN. In place.
void Relu(int64_t n, ConstTensor x, Tensor y, const KernelContext& context);

// As Relu, and bit i of `mask` tells whether x[i] > 0. (n+7)/8 bytes are
// written; bits past n are 0. In place on x.
void ReluWithMask(int64_t n, ConstTensor x, Tensor y, uint8_t* mask,
                  const KernelContext& context);

// grad_x = y > 0 ? grad_y : 0, from the forward output. In place on grad_y or
// y.
void ReluGradFromOutput(int64_t n, ConstTensor y, ConstTensor grad_y,
                        Tensor grad_x, const KernelContext& context);

// grad_x = mask ? grad_y : 0. In place on grad_y.
void ReluGradFromMask(int64_t n, const uint8_t* mask, ConstTensor grad_y,
                      Tensor grad_x, const KernelContext& context);

// Which elements a dropout keeps: a function of seed, step, stream and of the
// element's place in the step, so that a mask is drawn again instead of stored.
// Elements of an image are in groups of 64, each with 16 Philox counters: word
// w of counter j belongs to element 16 w + j of its group. Every image begins
// with a new group, and `first` is the place in the step of the first image of
// a call.
struct DropoutMask {
  uint64_t seed = 0;
  uint64_t step = 0;
  uint32_t stream = 0;
  int64_t first = 0;
  float rate = 0.0f;  // in [0, 1): the share that becomes 0

  // Of what is kept, so that the expectation stays.
  float scale() const { return 1.0f / (1.0f - rate); }
};
inline constexpr size_t kDropoutBlocks = 16;
inline constexpr size_t kDropoutGroup = 4 * kDropoutBlocks;

// Philox counters that `images` of `elements` each take; a stream has 2^32.
constexpr int64_t DropoutBlocks(int64_t images, int64_t elements) {
  constexpr auto kGroup = static_cast<int64_t>(kDropoutGroup);
  constexpr auto kBlocks = static_cast<int64_t>(kDropoutBlocks);
  return images * ((elements + kGroup - 1) / kGroup) * kBlocks;
}

// y = x * scale() where the mask keeps an element, else 0; bits do not depend
// on the SIMD target. The gradient is the same function of grad_y. In place.
// REQUIRES: DropoutBlocks(mask.first + images, elements) <= 2^32.
void Dropout(int64_t images, int64_t elements, const DropoutMask& mask,
             ConstTensor x, Tensor y, const KernelContext& context);

// Images as bytes into any float type: y[i, c, p] = x[i, c, p] * scale[c] +
// shift[c].
void NormalizeU8(int64_t images, int64_t channels, int64_t pixels,
                 const uint8_t* x, const float* scale, const float* shift,
                 Tensor y, const KernelContext& context);

// The same of elements [begin, begin + count) of each image, in the order
// [c, p], as rows y [images, count].
void NormalizeU8Slice(int64_t images, int64_t channels, int64_t pixels,
                      int64_t begin, int64_t count, const uint8_t* x,
                      const float* scale, const float* shift, Tensor y,
                      const KernelContext& context);

// y[i, c, p] = x[i, c, p] + bias[c]; pixels = 1 for rows of features. In place.
void BiasAdd(int64_t images, int64_t channels, int64_t pixels, ConstTensor x,
             ConstTensor bias, Tensor y, const KernelContext& context);

// grad_bias[c] = sum over i, p of grad_y[i, c, p], in index order of (i, p),
// plus addend[c] where it is there. In place on the addend.
void BiasGrad(int64_t images, int64_t channels, int64_t pixels,
              ConstTensor grad_y, ConstTensor addend, Tensor grad_bias,
              const KernelContext& context);

}  // namespace thimble::kernels
