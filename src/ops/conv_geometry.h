// SPDX-License-Identifier: Apache-2.0
//
// What the fused convolutions share: stride and padding, shapes, FLOPs and the
// scratch of sums.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/op.h"
#include "kernels/conv/conv.h"

namespace thimble::ops {

struct ConvGeometry {
  int64_t stride = 1;
  int64_t padding = 0;

  kernels::Conv2dShape ShapeOf(const ValueSpec& x, const ValueSpec& w) const;
  // Of one pass over the convolution's products.
  int64_t Flops(const ValueSpec& x, const ValueSpec& w) const;
  // The rules for shapes, and y as f32. Whether x and w are stored as the op's
  // kernel reads them is the op's to check.
  Result<std::vector<ValueSpec>> Infer(const ValueSpec& x,
                                       const ValueSpec& w) const;
};

// A multiply-add and a comparison for each element that a prologue makes.
inline constexpr int64_t kPrologueFlops = 3;

// A kernel runs once for each group.
inline kernels::Conv2dReduction Reduction(bool reducing, const ValueSpec& x,
                                          int64_t groups) {
  return {.reducing = reducing, .images = x.shape[0] / groups};
}

}  // namespace thimble::ops
