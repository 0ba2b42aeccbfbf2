// SPDX-License-Identifier: Apache-2.0
//
// Parameter updates, element by element and in place. Parameters, gradients and
// state are stored as f32, f16 or bf16, each as it likes. Everything is
// computed in f32; what does not fit is rounded once, when it is stored. Bits
// do not depend on the number of threads. Random numbers do not depend on the
// SIMD target either; what is rounded with them may.
#pragma once

#include <cstdint>

#include "kernels/context.h"
#include "kernels/random.h"
#include "kernels/tensor.h"
#include "thimble/rounding.h"

namespace thimble::kernels {

struct SgdStep {
  float learning_rate = 0.1f;
  float momentum = 0.0f;
  float weight_decay = 0.0f;
  bool nesterov = false;
  // Multiplied into the gradient before anything else.
  float gradient_scale = 1.0f;
  // The rate of the step that follows, for Rounding::kFeedback; 0: as this one.
  float next_learning_rate = 0.0f;
  Rounding rounding = Rounding::kNearest;
  // The parameter's; the velocity uses the stream that follows.
  RandomAddress random = {};
};

// g = gradient_scale * grad + weight_decay * param;  v = momentum * v + g;
// param −= learning_rate * (nesterov ? g + momentum * v : v).
// `velocity` may be None() when momentum is 0: then param −= learning_rate * g.
// With Rounding::kFeedback, e being what rounding took from the parameter:
// v += (e / rate) * (1 − 1/momentum), divided by momentum once more for
// nesterov, rate being the next step's. REQUIRES: momentum > 0 then.
void SgdUpdate(int64_t n, const SgdStep& step, Tensor param, ConstTensor grad,
               Tensor velocity, const KernelContext& context);

}  // namespace thimble::kernels
