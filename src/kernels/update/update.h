// SPDX-License-Identifier: Apache-2.0
//
// Parameter updates, element by element and in place. Parameters, gradients and
// state are stored as f32, f16, bf16 or bytes in blocks, each as it likes; the
// parameter is not in blocks. Everything is computed in f32; what does not fit
// is rounded once, when it is stored, in blocks always by chance. Bits do not
// depend on the number of threads. Random numbers do not depend on the SIMD
// target either; what is rounded with them may.
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

// A step of a parameter whose gradient is not stored: its sums, which are
// handed over in pieces (kernels/grad_sink), go into the velocity as they are
// made.
enum class SgdFold : uint8_t {
  kFirst,  // v = momentum * v + gradient_scale * sums + weight_decay * param
  kNext,   // v += gradient_scale * sums
  kWhole,  // all that SgdUpdate does, with the sums as gradient
};

// Folds the sums of elements [first, first + n), which begin a block; the
// parameter is changed by kWhole alone. With `look`, nothing is changed where a
// sum is not finite, and false is handed back.
bool SgdFoldPiece(int64_t first, int64_t n, const SgdStep& step, SgdFold form,
                  bool look, const float* sums, Tensor param, Tensor velocity);

// What is left to do when all sums are in the velocity, without Nesterov:
// param −= learning_rate * v, and rounding errors are fed back as in SgdUpdate.
// To the bit what SgdUpdate makes of one gradient, where the velocity is f32.
void SgdApply(int64_t n, const SgdStep& step, Tensor param, Tensor velocity,
              const KernelContext& context);

struct AdamStep {
  float learning_rate = 0.1f;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.0;
  bool decoupled = false;  // weight decay as AdamW has it
  uint64_t number = 1;     // of the step, counted from 1
  float gradient_scale = 1.0f;
  Rounding rounding = Rounding::kNearest;  // kFeedback is not for Adam
  // The parameter's; the moments use the two streams that follow.
  RandomAddress random = {};
};

// Both moments of a parameter, in one storage. Those in f16 are stored divided
// by a power of two, one for each moment, so that the largest lies between 2^14
// and 2^15; what is there is decoded with it, so zeros stay zeros. A second
// moment above 0 is not stored as 0 in f16, nor in blocks, which hold its root:
// else a later step would divide by next to nothing.
struct AdamMoments {
  Tensor first;
  Tensor second;
  float* first_scale = nullptr;  // read and written for f16 alone
  float* second_scale = nullptr;
};

// With t the step's number and g = gradient_scale * grad:
//   decoupled: param *= 1 − learning_rate * weight_decay
//   else:      g += weight_decay * param
//   m = beta1 * m + (1 − beta1) * g;  v = beta2 * v + (1 − beta2) * g²
//   param −= learning_rate / (1 − beta1^t) * m /
//            (sqrt(v) / sqrt(1 − beta2^t) + epsilon)
// The moments that are used are those before rounding.
void AdamUpdate(int64_t n, const AdamStep& step, Tensor param, ConstTensor grad,
                const AdamMoments& moments, const KernelContext& context);

}  // namespace thimble::kernels
