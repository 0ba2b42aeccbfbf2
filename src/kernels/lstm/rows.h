// SPDX-License-Identifier: Apache-2.0
//
// The tensors of one LSTM step after their storage type was asked for, and one
// row of them, which is what the SIMD code gets. Null: as None() in lstm.h.
#pragma once

#include <cstdint>

#include "kernels/lstm/lstm.h"

namespace thimble::kernels {

template <typename T>
T* RowOf(T* tensor, int64_t row, int64_t width) {
  return tensor == nullptr ? nullptr : tensor + row * width;
}

struct LstmCellRows {
  LstmCellRows(const LstmCellInput& in, const LstmCellOutput& out)
      : z(in.z.f32()),
        c_before(in.c_before.f32()),
        h(out.h.f32()),
        c(out.c.f32()),
        gates(out.gates.f32()),
        forget_offset(in.forget_offset) {}

  // The same from `row` on.
  LstmCellRows From(int64_t row, int64_t hidden) const {
    LstmCellRows rows = *this;
    rows.z = RowOf(z, row, 4 * hidden);
    rows.c_before = RowOf(c_before, row, hidden);
    rows.h = RowOf(h, row, hidden);
    rows.c = RowOf(c, row, hidden);
    rows.gates = RowOf(gates, row, 4 * hidden);
    return rows;
  }

  const float* z;
  const float* c_before;
  float* h;
  float* c;
  float* gates;
  float forget_offset;
};

struct LstmCellGradRows {
  LstmCellGradRows(const LstmCellGradInput& in, const LstmCellGradOutput& out)
      : gates(in.gates.f32()),
        c_before(in.c_before.f32()),
        grad_h(in.grad_h.f32()),
        grad_c(in.grad_c.f32()),
        grad_z(out.grad_z.f32()),
        grad_c_before(out.grad_c_before.f32()) {}

  LstmCellGradRows From(int64_t row, int64_t hidden) const {
    LstmCellGradRows rows = *this;
    rows.gates = RowOf(gates, row, 4 * hidden);
    rows.c_before = RowOf(c_before, row, hidden);
    rows.grad_h = RowOf(grad_h, row, hidden);
    rows.grad_c = RowOf(grad_c, row, hidden);
    rows.grad_z = RowOf(grad_z, row, 4 * hidden);
    rows.grad_c_before = RowOf(grad_c_before, row, hidden);
    return rows;
  }

  const float* gates;
  const float* c_before;
  const float* grad_h;
  const float* grad_c;
  float* grad_z;
  float* grad_c_before;
};

}  // namespace thimble::kernels
