// SPDX-License-Identifier: Apache-2.0
//
// The definition of batch normalisation: scalar, for any element type T (float,
// double, std::complex<double>: everything here is analytic).
#pragma once

#include <cmath>
#include <complex>
#include <cstdint>

#include "kernels/norm/norm.h"

namespace thimble::kernels::reference {

// Calls visit(channel, index) for every element, in memory order.
template <typename F>
void ForEachPixel(const BatchNormShape& shape, int64_t images, const F& visit) {
  int64_t at = 0;
  for (int64_t i = 0; i < images; ++i) {
    for (int64_t c = 0; c < shape.channels; ++c) {
      for (int64_t p = 0; p < shape.pixels; ++p, ++at) visit(c, at);
    }
  }
}

template <typename T>
void BatchNormStatistics(const BatchNormShape& shape, int64_t images,
                         const T* x, T* mean, T* variance) {
  const T count = T(static_cast<double>(images * shape.pixels));
  for (int64_t c = 0; c < shape.channels; ++c) mean[c] = variance[c] = T(0);
  ForEachPixel(shape, images, [&](int64_t c, int64_t at) { mean[c] += x[at]; });
  for (int64_t c = 0; c < shape.channels; ++c) mean[c] /= count;
  ForEachPixel(shape, images, [&](int64_t c, int64_t at) {
    variance[c] += (x[at] - mean[c]) * (x[at] - mean[c]);
  });
  for (int64_t c = 0; c < shape.channels; ++c) variance[c] /= count;
}

template <typename T>
void BatchNormApply(const BatchNormShape& shape, int64_t images, float epsilon,
                    const T* x, const T* gamma, const T* beta, const T* mean,
                    const T* variance, T* y) {
  ForEachPixel(shape, images, [&](int64_t c, int64_t at) {
    const T deviation = std::sqrt(variance[c] + T(epsilon));
    y[at] = (x[at] - mean[c]) / deviation * gamma[c] + beta[c];
  });
}

template <typename T>
void BatchNormTrain(const BatchNormShape& shape, int64_t images, float epsilon,
                    const T* x, const T* gamma, const T* beta, T* y, T* mean,
                    T* variance) {
  BatchNormStatistics(shape, images, x, mean, variance);
  BatchNormApply(shape, images, epsilon, x, gamma, beta, mean, variance, y);
}

template <typename T>
void BatchNormGrad(const BatchNormShape& shape, int64_t images, float epsilon,
                   const T* x, const T* gamma, const T* mean, const T* variance,
                   const T* grad_y, T* grad_x, T* grad_gamma, T* grad_beta) {
  const T count = T(static_cast<double>(images * shape.pixels));
  const auto normal = [&](int64_t c, int64_t at) {
    return (x[at] - mean[c]) / std::sqrt(variance[c] + T(epsilon));
  };
  for (int64_t c = 0; c < shape.channels; ++c) {
    grad_gamma[c] = grad_beta[c] = T(0);
  }
  ForEachPixel(shape, images, [&](int64_t c, int64_t at) {
    grad_beta[c] += grad_y[at];
    grad_gamma[c] += grad_y[at] * normal(c, at);
  });
  ForEachPixel(shape, images, [&](int64_t c, int64_t at) {
    const T factor = gamma[c] / std::sqrt(variance[c] + T(epsilon));
    grad_x[at] = factor * (grad_y[at] - grad_beta[c] / count -
                           normal(c, at) * grad_gamma[c] / count);
  });
}

template <typename T>
void BatchNormUpdateRunning(int64_t channels, int64_t count, float momentum,
                            const T* mean, const T* variance,
                            const T* running_mean, const T* running_variance,
                            T* next_mean, T* next_variance) {
  const T unbias = count > 1 ? T(static_cast<double>(count)) /
                                   T(static_cast<double>(count - 1))
                             : T(1);
  const T m = T(momentum);
  for (int64_t c = 0; c < channels; ++c) {
    next_mean[c] = (T(1) - m) * running_mean[c] + m * mean[c];
    next_variance[c] =
        (T(1) - m) * running_variance[c] + m * (variance[c] * unbias);
  }
}

}  // namespace thimble::kernels::reference
