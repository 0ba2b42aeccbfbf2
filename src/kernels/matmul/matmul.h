// SPDX-License-Identifier: Apache-2.0
//
// The linear map of rows of features, y = x Wᵀ, f32, without bias, and its two
// gradients. W is [out, in], x is [rows, in], y is [rows, out], all dense and
// row-major. `rows` may be less than the capacity that the workspace was asked
// for. Every output element is computed by one thread in one order that depends
// on the shape and the SIMD target only, never on rows or threads. No aliasing
// between inputs and outputs.
#pragma once

#include <cstdint>

#include "kernels/context.h"

namespace thimble::kernels {

struct LinearShape {
  int64_t in = 1;
  int64_t out = 1;
};

// y[r, o] = sum over i of x[r, i] * w[o, i]
Workspace LinearForwardWorkspace(const LinearShape& shape);
void LinearForward(const LinearShape& shape, int64_t rows, const float* x,
                   const float* w, float* y, const KernelContext& context);

// grad_x[r, i] = sum over o of grad_y[r, o] * w[o, i]
Workspace LinearGradInputWorkspace(const LinearShape& shape);
void LinearGradInput(const LinearShape& shape, int64_t rows,
                     const float* grad_y, const float* w, float* grad_x,
                     const KernelContext& context);

// grad_w[o, i] = sum over r of grad_y[r, o] * x[r, i], r in index order (as
// partial sums over 256 rows each). Zeros for no rows.
Workspace LinearGradWeightWorkspace(const LinearShape& shape);
void LinearGradWeight(const LinearShape& shape, int64_t rows, const float* x,
                      const float* grad_y, float* grad_w,
                      const KernelContext& context);

}  // namespace thimble::kernels
