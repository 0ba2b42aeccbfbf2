// SPDX-License-Identifier: Apache-2.0
//
// The definition of the linear map and its gradients: scalar, for any element
// type T (float, double, std::complex<double>).
#pragma once

#include <cstdint>

#include "kernels/matmul/matmul.h"

namespace thimble::kernels::reference {

template <typename T>
void LinearForward(const LinearShape& shape, int64_t rows, const T* x,
                   const T* w, T* y) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t o = 0; o < shape.out; ++o) {
      T sum(0);
      for (int64_t i = 0; i < shape.in; ++i) {
        sum += x[r * shape.in + i] * w[o * shape.in + i];
      }
      y[r * shape.out + o] = sum;
    }
  }
}

template <typename T>
void LinearGradInput(const LinearShape& shape, int64_t rows, const T* grad_y,
                     const T* w, T* grad_x) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < shape.in; ++i) {
      T sum(0);
      for (int64_t o = 0; o < shape.out; ++o) {
        sum += grad_y[r * shape.out + o] * w[o * shape.in + i];
      }
      grad_x[r * shape.in + i] = sum;
    }
  }
}

template <typename T>
void LinearGradWeight(const LinearShape& shape, int64_t rows, const T* x,
                      const T* grad_y, T* grad_w) {
  for (int64_t o = 0; o < shape.out; ++o) {
    for (int64_t i = 0; i < shape.in; ++i) {
      T sum(0);
      for (int64_t r = 0; r < rows; ++r) {
        sum += grad_y[r * shape.out + o] * x[r * shape.in + i];
      }
      grad_w[o * shape.in + i] = sum;
    }
  }
}

}  // namespace thimble::kernels::reference
