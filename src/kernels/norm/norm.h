// SPDX-License-Identifier: Apache-2.0
//
// Batch normalisation over planar images [images, channels, pixels], whole or
// in the parts that are left when it is fused into convolutions. Tensors are
// stored as f32, f16 or bf16, those of a whole one all alike (checked); what is
// written is rounded once, to nearest even. Vectors of a value for each channel
// are f32.
// Statistics are per channel over images and pixels; a channel belongs to one
// thread, which merges partial sums of each image in index order, in f64
// (variances by Chan's formula, never E[x²]−E[x]²). No scratch.
//
// A partial sum is f32 over at most kBatchNormPiece pixels in at least
// kBatchNormChains interleaved chains, so errors do not grow with the batch;
// rows of features (pixels = 1) are summed in f64.
#pragma once

#include <cstdint>

#include "kernels/context.h"
#include "kernels/tensor.h"

namespace thimble::kernels {

inline constexpr int64_t kBatchNormPiece = 1024;
inline constexpr int64_t kBatchNormChains = 16;

struct BatchNormShape {
  int64_t channels = 1;
  int64_t pixels = 1;
};

// mean[c] and the biased variance[c] of the batch, and
// y = x * scale + shift, one fused multiply-add with the coefficients of
// BatchNormCoefficients, which is (x − mean) / sqrt(variance + epsilon) * gamma
// + beta. In place on x. y is, to the bit, what BatchNormApply makes of x and
// the two results. REQUIRES: images > 0.
void BatchNormTrain(const BatchNormShape& shape, int64_t images, float epsilon,
                    const ConstTensor& x, const float* gamma, const float* beta,
                    const Tensor& y, float* mean, float* variance,
                    const KernelContext& context);

// y from given statistics (running ones). In place on x.
void BatchNormApply(const BatchNormShape& shape, int64_t images, float epsilon,
                    const ConstTensor& x, const float* gamma, const float* beta,
                    const float* mean, const float* variance, const Tensor& y,
                    const KernelContext& context);

// From the forward input x and the batch's statistics: with
// x̂ = (x − mean) / sqrt(variance + epsilon), m = images * pixels,
//   grad_beta = Σ grad_y,  grad_gamma = Σ grad_y x̂,
//   grad_x = gamma / sqrt(variance + epsilon)
//            * (grad_y − grad_beta/m − x̂ grad_gamma/m).
// grad_x may be None (only parameters wanted). In place on grad_y or x.
// `accumulate`: the two sums are added to what is there; grad_x comes from the
// sums of this call alone.
void BatchNormGrad(const BatchNormShape& shape, int64_t images, float epsilon,
                   const ConstTensor& x, const float* gamma, const float* mean,
                   const float* variance, const ConstTensor& grad_y,
                   const Tensor& grad_x, float* grad_gamma, float* grad_beta,
                   const KernelContext& context, bool accumulate = false);

// next = (1 − momentum) * running + momentum * batch, where the batch variance
// is made unbiased: variance * count / (count − 1), count = images * pixels
// (count 1: as it is). In place on the running values.
void BatchNormUpdateRunning(int64_t channels, int64_t count, float momentum,
                            const float* mean, const float* variance,
                            const float* running_mean,
                            const float* running_variance, float* next_mean,
                            float* next_variance, const KernelContext& context);

// ---- Parts

// inv_std = 1 / sqrt(variance + epsilon), scale = gamma * inv_std, shift =
// beta − mean * scale, each computed in f64 and rounded once. inv_std may be
// null.
void BatchNormCoefficients(int64_t channels, float epsilon, const float* mean,
                           const float* variance, const float* gamma,
                           const float* beta, float* scale, float* shift,
                           float* inv_std);

// mean and biased variance of a stored tensor; those of a tensor with more than
// one pixel are, to the bit, what BatchNormTrain finds.
// REQUIRES: images > 0.
void BatchNormMoments(const BatchNormShape& shape, int64_t images,
                      const ConstTensor& x, float* mean, float* variance,
                      const KernelContext& context);

// What is left of the gradient when the sums are known: with x̂ = (x − mean) *
// inv_std, m = images * pixels,
//   grad_x = gamma * inv_std * (d − grad_beta/m − x̂ grad_gamma/m) + residual.
// In place on d, x or the residual where the types are the same. The residual
// may be None.
struct BatchNormGradSums {
  const float* gamma = nullptr;
  const float* mean = nullptr;
  const float* inv_std = nullptr;
  const float* grad_gamma = nullptr;
  const float* grad_beta = nullptr;
};
void BatchNormGradRest(const BatchNormShape& shape, int64_t images,
                       const ConstTensor& d, const ConstTensor& x,
                       const BatchNormGradSums& sums,
                       const ConstTensor& residual, const Tensor& grad_x,
                       const KernelContext& context);

}  // namespace thimble::kernels
