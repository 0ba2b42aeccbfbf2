// SPDX-License-Identifier: Apache-2.0
//
// One step of an LSTM after its matrix products: the gates' nonlinearities and
// the update of the state, and the gradient of both. The tensors of a call are
// all stored alike, as f32, f16 or bf16 (checked). Rows of z, gates and grad_z
// hold 4·hidden values: the input gate, the forget gate, the candidate and the
// output gate, `hidden` of each. All other rows hold `hidden` values.
//
//   i = sigmoid(z_i)   f = sigmoid(z_f + forget_offset)
//   g = tanh(z_g)      o = sigmoid(z_o)
//   c = f · c_before + i · g           h = o · tanh(c)
//
// Arithmetic is f32; each result is rounded once, to nearest even, when it is
// written, and h comes from c before that. Each result depends on one position
// of the inputs, so results do not depend on the thread count. A NaN stays one.
// No scratch.
#pragma once

#include <cstdint>

#include "kernels/context.h"
#include "kernels/tensor.h"

namespace thimble::kernels {

struct LstmShape {
  int64_t rows = 0;
  int64_t hidden = 1;
};

struct LstmCellInput {
  ConstTensor z;
  ConstTensor c_before;  // None(): zeros, as before the first step
  float forget_offset = 0.0f;
};

struct LstmCellOutput {
  Tensor h;
  Tensor c;
  Tensor gates;  // i, f, g, o, for the gradient; None(): not wanted
};

// In place: gates on z; c or h on c_before.
void LstmCell(const LstmShape& shape, const LstmCellInput& in,
              const LstmCellOutput& out, const KernelContext& context);

struct LstmCellGradInput {
  ConstTensor gates;
  ConstTensor c_before;  // None(): zeros
  ConstTensor grad_h;    // None(): zeros
  ConstTensor grad_c;    // None(): zeros
};

struct LstmCellGradOutput {
  Tensor grad_z;
  Tensor grad_c_before;  // None(): not wanted
};

// Makes tanh(c) again from gates and c_before. In place: grad_z on gates;
// grad_c_before on c_before, grad_h or grad_c.
void LstmCellGrad(const LstmShape& shape, const LstmCellGradInput& in,
                  const LstmCellGradOutput& out, const KernelContext& context);

}  // namespace thimble::kernels
