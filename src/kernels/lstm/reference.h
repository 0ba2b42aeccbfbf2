// SPDX-License-Identifier: Apache-2.0
//
// The definition of an LSTM's step and its gradient: scalar, for any element
// type T (float, double, std::complex<double>).
#pragma once

#include <cmath>
#include <complex>
#include <cstdint>

#include "kernels/lstm/lstm.h"

namespace thimble::kernels::reference {

template <typename T>
T Sigmoid(const T& x) {
  using std::exp;
  return T(1) / (T(1) + exp(-x));
}

// c_before and gates may be null, as in the contract.
template <typename T>
void LstmCell(const LstmShape& shape, double forget_offset, const T* z,
              const T* c_before, T* h, T* c, T* gates) {
  using std::tanh;
  const int64_t n = shape.hidden;
  for (int64_t r = 0; r < shape.rows; ++r) {
    for (int64_t k = 0; k < n; ++k) {
      const T* at = z + r * 4 * n + k;
      const T i = Sigmoid(at[0]);
      const T f = Sigmoid(at[n] + T(forget_offset));
      const T g = tanh(at[2 * n]);
      const T o = Sigmoid(at[3 * n]);
      const int64_t here = r * n + k;
      const T before = c_before == nullptr ? T(0) : c_before[here];
      c[here] = f * before + i * g;
      h[here] = o * tanh(c[here]);
      if (gates == nullptr) continue;
      T* to = gates + r * 4 * n + k;
      to[0] = i;
      to[n] = f;
      to[2 * n] = g;
      to[3 * n] = o;
    }
  }
}

// All but gates and grad_z may be null, as in the contract.
template <typename T>
void LstmCellGrad(const LstmShape& shape, const T* gates, const T* c_before,
                  const T* grad_h, const T* grad_c, T* grad_z,
                  T* grad_c_before) {
  using std::tanh;
  const int64_t n = shape.hidden;
  for (int64_t r = 0; r < shape.rows; ++r) {
    for (int64_t k = 0; k < n; ++k) {
      const T* at = gates + r * 4 * n + k;
      const T i = at[0], f = at[n], g = at[2 * n], o = at[3 * n];
      const int64_t here = r * n + k;
      const T before = c_before == nullptr ? T(0) : c_before[here];
      const T squashed = tanh(f * before + i * g);
      const T from_h = grad_h == nullptr ? T(0) : grad_h[here];
      const T later = grad_c == nullptr ? T(0) : grad_c[here];
      const T grad = later + from_h * o * (T(1) - squashed * squashed);
      T* to = grad_z + r * 4 * n + k;
      to[0] = grad * g * i * (T(1) - i);
      to[n] = grad * before * f * (T(1) - f);
      to[2 * n] = grad * i * (T(1) - g * g);
      to[3 * n] = from_h * squashed * o * (T(1) - o);
      if (grad_c_before != nullptr) grad_c_before[here] = grad * f;
    }
  }
}

}  // namespace thimble::kernels::reference
