// SPDX-License-Identifier: Apache-2.0
//
// The linear map of rows of features, y = x Wᵀ, without bias, and its two
// gradients. W is [out, in], x is [rows, in], y is [rows, out], all row-major;
// W may be sparse: then what is kept is all that is read, and its gradient is
// made of what is kept alone. Each is stored as f32, f16 or bf16 (checked).
// `rows` may be less than the capacity that the workspace was asked for. Every
// output element is computed by one thread in one order that depends on the
// shape and the SIMD target only, never on rows or threads. Sums are f32, and
// the same whatever the storage of the values; only where dot products are on
// (dot/dot_form.h) are inputs in bf16 multiplied in pairs, and denormals zeros.
// A target of 16 bits is rounded once, to nearest even, when its sums are
// complete. No aliasing between inputs and outputs, but for a target's addend.
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/context.h"
#include "kernels/grad_sink/grad_sink.h"
#include "kernels/tensor.h"
#include "thimble/sparsity.h"

namespace thimble::kernels {

struct LinearShape {
  int64_t in = 1;
  int64_t out = 1;
  // Of weights that are sparse, what is kept as one; none where they are dense.
  std::optional<WeightBlock> blocks = std::nullopt;
};

// Where a result goes, and what it is added to: the sums below are then
// addend + sum.
struct LinearTarget {
  Tensor to;  // None with pieces
  // Same shape and storage; may be `to`.
  ConstTensor addend = ConstTensor::None();
  // In place of both, for the gradient of W alone: takes the sums in pieces
  // (kernels/grad_sink).
  const PieceSink* pieces = nullptr;
  // Of sparse weights, for their gradient alone: `to`, the addend, or the
  // pieces, are the values that it keeps, one after the other.
  const Pattern* pattern = nullptr;
};

// How the tensors of a call are stored: its two inputs, in the order in which
// they are given, and its target. A call takes at most 32 KiB of scratch per
// thread where all is f32 and dense, and at most 128 KiB otherwise.
struct LinearStorage {
  DType a = DType::kF32;
  DType b = DType::kF32;
  DType to = DType::kF32;
};

// y[r, o] = sum over i of x[r, i] * w[o, i]
Workspace LinearForwardWorkspace(const LinearShape& shape,
                                 const LinearStorage& storage = {});
void LinearForward(const LinearShape& shape, int64_t rows, const ConstTensor& x,
                   const ConstTensor& w, const LinearTarget& y,
                   const KernelContext& context);

// grad_x[r, i] = sum over o of grad_y[r, o] * w[o, i]
Workspace LinearGradInputWorkspace(const LinearShape& shape,
                                   const LinearStorage& storage = {});
void LinearGradInput(const LinearShape& shape, int64_t rows,
                     const ConstTensor& grad_y, const ConstTensor& w,
                     const LinearTarget& grad_x, const KernelContext& context);

// grad_w[o, i] = sum over r of grad_y[r, o] * x[r, i], r in index order (as
// partial sums over 256 rows each, 128 of sparse weights). Zeros for no rows.
// The sums are the same in pieces, for which the scratch is the second one
// (storage.to is not read).
Workspace LinearGradWeightWorkspace(const LinearShape& shape,
                                    const LinearStorage& storage = {});
Workspace LinearGradPiecesWorkspace(const LinearShape& shape,
                                    const LinearStorage& storage = {});
void LinearGradWeight(const LinearShape& shape, int64_t rows,
                      const ConstTensor& x, const ConstTensor& grad_y,
                      const LinearTarget& grad_w, const KernelContext& context);

}  // namespace thimble::kernels
