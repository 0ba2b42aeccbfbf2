// SPDX-License-Identifier: Apache-2.0
//
// The definition of the parameter updates: scalar, for any element type T, in
// which nothing is rounded to a storage type.
#pragma once

#include <cstdint>

#include "kernels/update/update.h"

namespace thimble::kernels::reference {

template <typename T>
void SgdUpdate(int64_t n, const SgdStep& step, T* param, const T* grad,
               T* velocity) {
  const T rate = T(step.learning_rate);
  const T momentum = T(step.momentum);
  for (int64_t i = 0; i < n; ++i) {
    const T g =
        T(step.gradient_scale) * grad[i] + T(step.weight_decay) * param[i];
    T direction = g;
    if (velocity != nullptr) {
      velocity[i] = momentum * velocity[i] + g;
      direction = step.nesterov ? g + momentum * velocity[i] : velocity[i];
    }
    param[i] -= rate * direction;
  }
}

}  // namespace thimble::kernels::reference
