// SPDX-License-Identifier: Apache-2.0
//
// What a convolution with batch norm in its prologue (kernels/conv) leaves to
// be done: the prologue's factors, and the rest of batch norm's backward.
// Planar f32, no scratch.
#pragma once

#include <cstdint>

#include "kernels/context.h"
#include "kernels/norm/norm.h"

namespace thimble::kernels {

// inv_std = 1 / sqrt(variance + epsilon), scale = gamma * inv_std,
// shift = beta − mean * scale: (x − mean) * inv_std * gamma + beta is then
// x * scale + shift. Computed in f64, rounded once.
void NormFactors(int64_t channels, float epsilon, const float* mean,
                 const float* variance, const float* gamma, const float* beta,
                 float* scale, float* shift, float* inv_std);

// What one channel's part of BatchNormGradApply needs.
struct NormGradArguments {
  const float* grad = nullptr;  // of the normalised values
  const float* x = nullptr;
  const float* gamma = nullptr;
  const float* mean = nullptr;
  const float* variance = nullptr;
  const float* grad_gamma = nullptr;  // sums over the batch, as in norm.h
  const float* grad_beta = nullptr;
  const float* other = nullptr;  // added to the result; null: none
  float* grad_x = nullptr;
};

// With x̂ = (x − mean) / sqrt(variance + epsilon) and m = images * pixels:
//   grad_x = gamma / sqrt(variance + epsilon)
//            * (grad − grad_beta/m − x̂ grad_gamma/m) [+ other].
// In place on grad, x or other.
void BatchNormGradApply(const BatchNormShape& shape, int64_t images,
                        float epsilon, const NormGradArguments& arguments,
                        const KernelContext& context);

}  // namespace thimble::kernels
