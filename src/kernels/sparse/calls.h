// SPDX-License-Identifier: Apache-2.0
//
// What does not change during a call of the kernels for sparse weights. Views;
// internal to the kernels.
#pragma once

#include <cstdint>

#include "kernels/conv/conv.h"
#include "kernels/conv/operand.h"

namespace thimble::kernels::sparse {

// Of the forward pass, or of the gradient of the input.
struct SumCall {
  int64_t images;
  const Conv2dInput& input;
  const ConstTensor& weights;
  const conv::Sink& sink;
  int64_t pixels;  // of a plane of the output
};

struct WeightCall {
  int64_t images;
  const Conv2dInput& x;
  const ConstTensor& grad_y;
  const Conv2dGradWeightTarget& grad_w;
};

}  // namespace thimble::kernels::sparse
