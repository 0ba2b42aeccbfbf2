// SPDX-License-Identifier: Apache-2.0
//
// The linear map of rows of features, y = x Wᵀ, without bias, and its two
// gradients, of tensors stored as f32 (checked). W is [out, in], x is [rows,
// in], y is [rows, out], all dense and row-major. `rows` may be less than the
// capacity that the workspace was asked for. Every output element is computed
// by one thread in one order that depends on the shape and the SIMD target
// only, never on rows or threads. No aliasing between inputs and outputs, but
// for a target's addend.
#pragma once

#include <cstdint>

#include "kernels/context.h"
#include "kernels/tensor.h"

namespace thimble::kernels {

struct LinearShape {
  int64_t in = 1;
  int64_t out = 1;
};

// Where a result goes, and what it is added to: the sums below are then
// addend + sum.
struct LinearTarget {
  Tensor to;
  // Same shape; may be `to`.
  ConstTensor addend = ConstTensor::None();
};

// y[r, o] = sum over i of x[r, i] * w[o, i]
Workspace LinearForwardWorkspace(const LinearShape& shape);
void LinearForward(const LinearShape& shape, int64_t rows, const ConstTensor& x,
                   const ConstTensor& w, const LinearTarget& y,
                   const KernelContext& context);

// grad_x[r, i] = sum over o of grad_y[r, o] * w[o, i]
Workspace LinearGradInputWorkspace(const LinearShape& shape);
void LinearGradInput(const LinearShape& shape, int64_t rows,
                     const ConstTensor& grad_y, const ConstTensor& w,
                     const LinearTarget& grad_x, const KernelContext& context);

// grad_w[o, i] = sum over r of grad_y[r, o] * x[r, i], r in index order (as
// partial sums over 256 rows each). Zeros for no rows.
Workspace LinearGradWeightWorkspace(const LinearShape& shape);
void LinearGradWeight(const LinearShape& shape, int64_t rows,
                      const ConstTensor& x, const ConstTensor& grad_y,
                      const LinearTarget& grad_w, const KernelContext& context);

}  // namespace thimble::kernels
