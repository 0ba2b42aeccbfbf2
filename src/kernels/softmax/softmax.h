// SPDX-License-Identifier: Apache-2.0
//
// Softmax cross-entropy of rows of logits [rows, classes] against integer
// labels, f32. Each row belongs to one thread; sums over rows are in row order.
#pragma once

#include <cstdint>

#include "kernels/context.h"

namespace thimble::kernels {

// `rows` is the capacity here: one float per row is kept until the sum.
Workspace SoftmaxCrossEntropyWorkspace(int64_t rows);

// loss[0] = mean over rows of −log softmax(logits)[label]; correct[0] = number
// of rows whose first largest logit is the label's. REQUIRES: labels are in
// [0, classes).
void SoftmaxCrossEntropy(int64_t rows, int64_t classes, const float* logits,
                         const int32_t* labels, float* loss, int32_t* correct,
                         const KernelContext& context);

// grad = (softmax(logits) − onehot(label)) * scale. In place on logits.
void SoftmaxCrossEntropyGrad(int64_t rows, int64_t classes,
                             const float* logits, const int32_t* labels,
                             float scale, float* grad,
                             const KernelContext& context);

}  // namespace thimble::kernels
