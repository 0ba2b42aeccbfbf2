// SPDX-License-Identifier: Apache-2.0
//
// 3x3 convolutions of stride 1 and padding 1 of tensors in bf16, all three
// passes, by Winograd's F(2x2, 3x3) with dot products: conv/winograd.h has the
// formulas, slices and strips. Transformed inputs and weights are rounded to
// bf16 and multiplied in pairs; sums are f32. Internal to kernels/.
//
// Forward and gradient of the input: lanes run over the 16 tiles of a strip,
// and a pair is two neighbouring channels. Gradient of the weights: lanes run
// over outputs, and a pair is two neighbouring tiles.
//
// Scratch is what the other ways of the same pass have planned anyway, so that
// plans depend neither on the CPU nor on the form.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/conv/conv.h"
#include "kernels/conv/operand.h"

namespace thimble::kernels::dot {

// What writes `n` results of one channel, from element `offset` on, to where
// they belong, with what the sink asks for; and what stores the sums of a block
// of weights. Both are conv/'s, of the active SIMD target.
using RowWriter = void (*)(const conv::Sink& sink, int64_t channel,
                           int64_t offset, int64_t n, float* values,
                           conv::Partial* partial);
using WeightWriter = void (*)(const Conv2dGradWeightTarget& grad_w,
                              const float* sums, int64_t width, int64_t outputs,
                              int64_t count, int64_t at, int64_t stride);

// Both return false, and do nothing, where dot products are off, the tensors
// are not bf16, or the shape has no such way in `bytes` of scratch per thread;
// for the gradient of the weights, in what is planned whether it is stored or
// handed over in pieces (conv/weight_units.h).
bool RunWinograd(const Conv2dShape& shape, bool forward, size_t bytes,
                 int64_t images, const Conv2dInput& input,
                 const ConstTensor& weights, const conv::Sink& sink,
                 RowWriter write, const KernelContext& context);
bool RunWinogradWeightGrad(const Conv2dShape& shape, int64_t images,
                           const Conv2dInput& x, const ConstTensor& grad_y,
                           const Conv2dGradWeightTarget& grad_w,
                           WeightWriter write, const KernelContext& context);

}  // namespace thimble::kernels::dot
