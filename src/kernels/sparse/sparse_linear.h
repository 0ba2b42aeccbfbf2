// SPDX-License-Identifier: Apache-2.0
//
// The linear map's way with sparse weights (kernels/matmul/matmul.h), as
// sparse_conv.h is the convolution's. Internal to the kernels; safe from every
// thread.
#pragma once

#include <cstdint>

#include "kernels/matmul/matmul.h"

namespace thimble::kernels::sparse {

// A thread's scratch in floats, of a shape with blocks.
int64_t LinearFloats(const LinearShape& shape, bool forward);
int64_t LinearWeightFloats(const LinearShape& shape);

// The forward pass of x, or the gradient of the input for grad_y.
void RunLinear(const LinearShape& shape, bool forward, int64_t rows,
               const ConstTensor& x, const ConstTensor& weights,
               const LinearTarget& y, const KernelContext& context);

void RunLinearWeightGrad(const LinearShape& shape, int64_t rows,
                         const ConstTensor& x, const ConstTensor& grad_y,
                         const LinearTarget& grad_w,
                         const KernelContext& context);

}  // namespace thimble::kernels::sparse
