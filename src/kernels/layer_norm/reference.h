// SPDX-License-Identifier: Apache-2.0
//
// The definition of layer normalisation: scalar, for any element type T (float,
// double, std::complex<double>: the function is analytic).
#pragma once

#include <cmath>
#include <complex>
#include <cstdint>

namespace thimble::kernels::reference {

// Of one row: the mean, and 1 / sqrt(variance + epsilon).
template <typename T>
void LayerNormMoments(int64_t features, double epsilon, const T* x, T* mean,
                      T* inv_std) {
  using std::sqrt;
  const T n = T(static_cast<double>(features));
  T sum = T(0);
  for (int64_t i = 0; i < features; ++i) sum += x[i];
  *mean = sum / n;
  T squares = T(0);
  for (int64_t i = 0; i < features; ++i) {
    squares += (x[i] - *mean) * (x[i] - *mean);
  }
  *inv_std = T(1) / sqrt(squares / n + T(epsilon));
}

template <typename T>
void LayerNorm(int64_t rows, int64_t features, double epsilon, const T* x,
               const T* gamma, const T* beta, T* y) {
  for (int64_t r = 0; r < rows; ++r, x += features, y += features) {
    T mean, inv_std;
    LayerNormMoments(features, epsilon, x, &mean, &inv_std);
    for (int64_t i = 0; i < features; ++i) {
      y[i] = (x[i] - mean) * inv_std * gamma[i] + beta[i];
    }
  }
}

template <typename T>
void LayerNormGrad(int64_t rows, int64_t features, double epsilon, const T* x,
                   const T* gamma, const T* grad_y, T* grad_x, T* grad_gamma,
                   T* grad_beta) {
  const T n = T(static_cast<double>(features));
  for (int64_t i = 0; i < features; ++i) grad_gamma[i] = grad_beta[i] = T(0);
  for (int64_t r = 0; r < rows; ++r) {
    T mean, inv_std;
    LayerNormMoments(features, epsilon, x, &mean, &inv_std);
    T sum = T(0), product = T(0);
    for (int64_t i = 0; i < features; ++i) {
      const T normal = (x[i] - mean) * inv_std;
      grad_gamma[i] += grad_y[i] * normal;
      grad_beta[i] += grad_y[i];
      sum += grad_y[i] * gamma[i];
      product += grad_y[i] * gamma[i] * normal;
    }
    for (int64_t i = 0; i < features; ++i) {
      const T normal = (x[i] - mean) * inv_std;
      grad_x[i] =
          inv_std * (grad_y[i] * gamma[i] - sum / n - normal * product / n);
    }
    x += features;
    grad_y += features;
    grad_x += features;
  }
}

}  // namespace thimble::kernels::reference
