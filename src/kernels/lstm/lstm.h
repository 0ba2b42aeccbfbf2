// SPDX-License-Identifier: Apache-2.0
//
// One step of an LSTM after its matrix products: the gates' nonlinearities and
// the update of the state, and the gradient of both, f32. Rows of z, gates and
// grad_z hold 4·hidden values: the input gate, the forget gate, the candidate
// and the output gate, `hidden` of each. All other rows hold `hidden` values.
//
//   i = sigmoid(z_i)   f = sigmoid(z_f + forget_offset)
//   g = tanh(z_g)      o = sigmoid(z_o)
//   c = f · c_before + i · g           h = o · tanh(c)
//
// Each result depends on one position of the inputs, so results do not depend
// on the thread count. A NaN stays one. No scratch.
#pragma once

#include <cstdint>

#include "kernels/context.h"

namespace thimble::kernels {

struct LstmShape {
  int64_t rows = 0;
  int64_t hidden = 1;
};

struct LstmCellInput {
  const float* z = nullptr;
  const float* c_before = nullptr;  // null: zeros, as before the first step
  float forget_offset = 0.0f;
};

struct LstmCellOutput {
  float* h = nullptr;
  float* c = nullptr;
  float* gates = nullptr;  // i, f, g, o, for the gradient; null: not wanted
};

// In place: gates on z; c or h on c_before.
void LstmCell(const LstmShape& shape, const LstmCellInput& in,
              const LstmCellOutput& out, const KernelContext& context);

struct LstmCellGradInput {
  const float* gates = nullptr;
  const float* c_before = nullptr;  // null: zeros
  const float* grad_h = nullptr;    // null: zeros
  const float* grad_c = nullptr;    // null: zeros
};

struct LstmCellGradOutput {
  float* grad_z = nullptr;
  float* grad_c_before = nullptr;  // null: not wanted
};

// Makes tanh(c) again from gates and c_before. In place: grad_z on gates;
// grad_c_before on c_before, grad_h or grad_c.
void LstmCellGrad(const LstmShape& shape, const LstmCellGradInput& in,
                  const LstmCellGradOutput& out, const KernelContext& context);

}  // namespace thimble::kernels
