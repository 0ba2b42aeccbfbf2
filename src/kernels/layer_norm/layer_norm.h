// SPDX-License-Identifier: Apache-2.0
//
// Layer normalisation of rows of features [rows, features], each row by its own
// mean and variance. Tensors are stored as f32, f16 or bf16, those of a call
// all alike (checked); what is written is rounded once, to nearest even. gamma,
// beta and their gradients are f32.
//
// Statistics are f32 sums over a row in interleaved chains, in two passes: the
// variance is that of deviations from the mean. Backward makes them anew, since
// a row is in the first cache anyway, so nothing is kept from forward. A row
// belongs to one thread, and what is made of it depends on no other row. Sums
// over rows are partial sums of kLayerNormRows rows each, in row order, which
// are merged in row order.
#pragma once

#include <cstdint>

#include "kernels/context.h"
#include "kernels/tensor.h"

namespace thimble::kernels {

inline constexpr int64_t kLayerNormRows = 64;

// y = (x − mean) / sqrt(variance + epsilon) * gamma + beta, with the biased
// variance. In place on x. No scratch.
void LayerNorm(int64_t rows, int64_t features, float epsilon,
               const ConstTensor& x, const float* gamma, const float* beta,
               const Tensor& y, const KernelContext& context);

// `rows` is the capacity here: room for the partial sums of up to 16 groups of
// rows.
Workspace LayerNormGradWorkspace(int64_t rows, int64_t features);

// From the forward input: with x̂ = (x − mean) / sqrt(variance + epsilon) and
// g = grad_y * gamma,
//   grad_gamma = Σ over rows of grad_y x̂,  grad_beta = Σ over rows of grad_y,
//   grad_x = (g − mean of g − x̂ * mean of g x̂) / sqrt(variance + epsilon),
// means over the features of a row. grad_x may be None (only parameters
// wanted). In place on grad_y or x. `accumulate`: the two sums are added to
// what is there. Zeros for no rows.
void LayerNormGrad(int64_t rows, int64_t features, float epsilon,
                   const ConstTensor& x, const float* gamma,
                   const ConstTensor& grad_y, const Tensor& grad_x,
                   float* grad_gamma, float* grad_beta,
                   const KernelContext& context, bool accumulate = false);

}  // namespace thimble::kernels
