// SPDX-License-Identifier: Apache-2.0
//
// Softmax cross-entropy of rows of logits [rows, classes] against integer
// labels. Logits and their gradient are stored as f32, f16 or bf16, both in the
// same type; a gradient is computed in f32 and rounded once, to nearest even.
// Each row belongs to one thread; sums over rows are in row order, those over a
// row's exponentials are f64, so that the error does not grow with the number
// of classes. A NaN or +inf among the logits makes the row's loss and gradient
// NaN.
#pragma once

#include <cstdint>

#include "kernels/context.h"
#include "kernels/tensor.h"

namespace thimble::kernels {

// `rows` is the capacity here: one float per row is kept until the sum.
Workspace SoftmaxCrossEntropyWorkspace(int64_t rows);

// loss[0] = mean over rows of −log softmax(logits)[label]; correct[0] = number
// of rows whose first largest logit is the label's (none where the loss is
// NaN). REQUIRES: rows > 0, labels are in [0, classes).
void SoftmaxCrossEntropy(int64_t rows, int64_t classes, ConstTensor logits,
                         const int32_t* labels, float* loss, int32_t* correct,
                         const KernelContext& context);

// grad = (softmax(logits) − onehot(label)) * scale * loss_scale, the last
// product in f32, before grad is rounded. In place on logits.
void SoftmaxCrossEntropyGrad(int64_t rows, int64_t classes, ConstTensor logits,
                             const int32_t* labels, float scale,
                             float loss_scale, Tensor grad,
                             const KernelContext& context);

}  // namespace thimble::kernels
