// SPDX-License-Identifier: Apache-2.0
//
// Label-smoothed cross-entropy of rows of logits [rows, classes], f32, against
// integer labels. With p = softmax(logits), V classes and smoothing ε, a row's
// loss is (1 − ε) · −log p(label) + ε/V · Σ −log p(v). The gradient is f32, f16
// or bf16, computed in f32 and rounded once. Each row belongs to one thread;
// sums over it are f64. A NaN or +inf among the logits makes the row's results
// NaN.
#pragma once

#include <cstdint>

#include "kernels/context.h"
#include "kernels/tensor.h"

namespace thimble::kernels {

struct TokenLossShape {
  int64_t classes = 1;
  float smoothing = 0.0f;  // in [0, 1)
};

// What is told of each row.
struct TokenLosses {
  float* loss;   // label-smoothed
  float* nll;    // −log p(label)
  int32_t* hit;  // 1 where the first largest logit is the label's, else 0
};

// REQUIRES: labels are in [0, classes).
void TokenLoss(const TokenLossShape& shape, int64_t rows, const float* logits,
               const int32_t* labels, const TokenLosses& to,
               const KernelContext& context);

// grad = (p − (1 − ε) onehot(label) − ε/V) * scale * loss_scale, the last
// product in f32. `logits` are overwritten; grad may be they.
void TokenLossGrad(const TokenLossShape& shape, int64_t rows, float* logits,
                   const int32_t* labels, float scale, float loss_scale,
                   const Tensor& grad, const KernelContext& context);

}  // namespace thimble::kernels
