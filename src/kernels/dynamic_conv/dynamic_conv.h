// SPDX-License-Identifier: Apache-2.0
//
// Dynamic convolution (Wu et al., "Pay Less Attention with Lightweight and
// Dynamic Convolutions", 2019): every token has taps of its own, which the
// features of a head share.
//
//   y[t, c] = sum over j of tap[t, h, j] * u[t + j - before, c]
//   tap[t, h] = dropout(softmax of logits[t, h*K ... h*K + K))
//
// with h = c / (features / heads). Rows outside of t's sentence are left out of
// the sum; the softmax is over all K taps, and what dropout leaves is not
// normalised again. u, y and their gradients are [tokens, features]; logits and
// their gradient are [tokens, heads * K]; each of them is f32, f16 or bf16 of
// its own. Arithmetic is f32, and a value is rounded once, to nearest even.
// Every element is made in an order that depends on the shape and the SIMD
// target alone: not on the threads, on the other sentences, or on where its
// sentence lies. No band matrix and no unfolded copy: taps of a block of rows
// are in scratch.
#pragma once

#include <cstdint>

#include "kernels/context.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/sentences.h"
#include "kernels/tensor.h"

namespace thimble::kernels {

struct DynamicConvShape {
  int64_t features = 0;
  int64_t heads = 1;   // divides the features
  int64_t kernel = 1;  // K, which is odd unless causal
  bool causal = false;

  int64_t width() const { return features / heads; }  // of a head
  int64_t taps() const { return heads * kernel; }     // of a row
  // Rows before a token that its taps reach, and behind it.
  int64_t before() const { return causal ? kernel - 1 : (kernel - 1) / 2; }
  int64_t behind() const { return kernel - 1 - before(); }
};

// For all three: taps of a block of rows, and in backward of those that reach
// it. 4 * heads * K * (63 + K) bytes for each thread, or little more: 46,624
// for 4 heads of 31 taps, whatever the length of a sentence.
Workspace DynamicConvWorkspace(const DynamicConvShape& shape);

// `mask` is of rows of shape.taps() elements, drawn as Dropout draws it:
// mask.first is the place in the step of the text's first row. No aliasing.
void DynamicConv(const DynamicConvShape& shape, const Sentences& sentences,
                 const DropoutMask& mask, ConstTensor u, ConstTensor logits,
                 Tensor y, const KernelContext& context);

void DynamicConvGradInput(const DynamicConvShape& shape,
                          const Sentences& sentences, const DropoutMask& mask,
                          ConstTensor logits, ConstTensor grad_y, Tensor grad_u,
                          const KernelContext& context);

// In place on the logits.
void DynamicConvGradLogits(const DynamicConvShape& shape,
                           const Sentences& sentences, const DropoutMask& mask,
                           ConstTensor u, ConstTensor logits,
                           ConstTensor grad_y, Tensor grad_logits,
                           const KernelContext& context);

}  // namespace thimble::kernels
