// SPDX-License-Identifier: Apache-2.0
//
// Parameter updates, element by element and in place. Tensors are f32.
#pragma once

#include <cstdint>

#include "kernels/context.h"
#include "kernels/tensor.h"

namespace thimble::kernels {

struct SgdStep {
  float learning_rate = 0.1f;
  float momentum = 0.0f;
  float weight_decay = 0.0f;
  bool nesterov = false;
};

// g = grad + weight_decay * param;  v = momentum * v + g;
// param −= learning_rate * (nesterov ? g + momentum * v : v).
// `velocity` may be None() when momentum is 0: then param −= learning_rate * g.
void SgdUpdate(int64_t n, const SgdStep& step, Tensor param, ConstTensor grad,
               Tensor velocity, const KernelContext& context);

}  // namespace thimble::kernels
