// SPDX-License-Identifier: Apache-2.0
//
// The definition of the parameter updates: scalar, for any element type T, in
// which nothing is rounded to a storage type.
#pragma once

#include <cmath>
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

template <typename T>
void AdamUpdate(int64_t n, const AdamStep& step, T* param, const T* grad,
                T* first, T* second) {
  const auto t = static_cast<double>(step.number);
  const T rate = T(step.learning_rate), decay = T(step.weight_decay);
  const T correct1 = T(1) - T(std::pow(step.beta1, t));
  const T correct2 = T(1) - T(std::pow(step.beta2, t));
  for (int64_t i = 0; i < n; ++i) {
    T g = T(step.gradient_scale) * grad[i];
    if (step.decoupled) {
      param[i] *= T(1) - rate * decay;
    } else {
      g += decay * param[i];
    }
    first[i] = T(step.beta1) * first[i] + T(1 - step.beta1) * g;
    second[i] = T(step.beta2) * second[i] + T(1 - step.beta2) * g * g;
    const T root = std::sqrt(second[i]) / std::sqrt(correct2);
    param[i] -= rate / correct1 * first[i] / (root + T(step.epsilon));
  }
}

}  // namespace thimble::kernels::reference
