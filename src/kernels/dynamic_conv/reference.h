// SPDX-License-Identifier: Apache-2.0
//
// The definition of dynamic convolution: scalar, for any element type T. With
// std::complex<double> the largest logit is that of the real parts; it cancels
// out of the softmax, which stays analytic.
#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <vector>

#include "kernels/dynamic_conv/dynamic_conv.h"
#include "kernels/elementwise/reference.h"

namespace thimble::kernels::reference {

// p[i] = exp(x[i]) / sum of exp(x)
template <typename T>
void Softmax(int64_t n, const T* x, T* p) {
  using std::exp, std::real;  // T may have its own
  double largest = real(x[0]);
  for (int64_t i = 1; i < n; ++i) {
    largest = std::max(largest, static_cast<double>(real(x[i])));
  }
  T sum = T(0);
  for (int64_t i = 0; i < n; ++i) {
    p[i] = exp(x[i] - T(largest));
    sum += p[i];
  }
  for (int64_t i = 0; i < n; ++i) p[i] /= sum;
}

// What dropout multiplies tap i of row t with.
inline double TapFactor(const DynamicConvShape& shape, const DropoutMask& mask,
                        int64_t t, int64_t i) {
  const bool keeps = DropoutKeeps(mask, mask.first + t, shape.taps(), i);
  return keeps ? static_cast<double>(mask.scale()) : 0.0;
}

// Calls f(t, s, i, c) for every product: row t takes feature c of row s times
// its tap i.
template <typename F>
void ForEachTap(const DynamicConvShape& shape, const Sentences& sentences,
                const F& f) {
  for (int64_t n = 0; n < sentences.count; ++n) {
    const int64_t begin = sentences.begin(n), end = sentences.end(n);
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t c = 0; c < shape.features; ++c) {
        for (int64_t j = 0; j < shape.kernel; ++j) {
          const int64_t s = t + j - shape.before();
          if (s < begin || s >= end) continue;
          f(t, s, c / shape.width() * shape.kernel + j, c);
        }
      }
    }
  }
}

template <typename T>
std::vector<T> SoftmaxOfTaps(const DynamicConvShape& shape, int64_t rows,
                             const T* logits) {
  std::vector<T> taps(static_cast<size_t>(rows * shape.taps()));
  for (int64_t i = 0; i < rows * shape.heads; ++i) {
    Softmax(shape.kernel, logits + i * shape.kernel,
            taps.data() + i * shape.kernel);
  }
  return taps;
}

template <typename T>
void DynamicConv(const DynamicConvShape& shape, const Sentences& sentences,
                 const DropoutMask& mask, const T* u, const T* logits, T* y) {
  const int64_t rows = sentences.rows();
  const std::vector<T> taps = SoftmaxOfTaps(shape, rows, logits);
  std::fill(y, y + rows * shape.features, T(0));
  ForEachTap(shape, sentences, [&](int64_t t, int64_t s, int64_t i, int64_t c) {
    const T tap = taps[static_cast<size_t>(t * shape.taps() + i)] *
                  T(TapFactor(shape, mask, t, i));
    y[t * shape.features + c] += tap * u[s * shape.features + c];
  });
}

template <typename T>
void DynamicConvGradInput(const DynamicConvShape& shape,
                          const Sentences& sentences, const DropoutMask& mask,
                          const T* logits, const T* grad_y, T* grad_u) {
  const int64_t rows = sentences.rows();
  const std::vector<T> taps = SoftmaxOfTaps(shape, rows, logits);
  std::fill(grad_u, grad_u + rows * shape.features, T(0));
  ForEachTap(shape, sentences, [&](int64_t t, int64_t s, int64_t i, int64_t c) {
    const T tap = taps[static_cast<size_t>(t * shape.taps() + i)] *
                  T(TapFactor(shape, mask, t, i));
    grad_u[s * shape.features + c] += tap * grad_y[t * shape.features + c];
  });
}

template <typename T>
void DynamicConvGradLogits(const DynamicConvShape& shape,
                           const Sentences& sentences, const DropoutMask& mask,
                           const T* u, const T* logits, const T* grad_y,
                           T* grad_logits) {
  const int64_t rows = sentences.rows();
  const std::vector<T> taps = SoftmaxOfTaps(shape, rows, logits);
  std::vector<T> grad_taps(taps.size(), T(0));
  ForEachTap(shape, sentences, [&](int64_t t, int64_t s, int64_t i, int64_t c) {
    grad_taps[static_cast<size_t>(t * shape.taps() + i)] +=
        T(TapFactor(shape, mask, t, i)) * grad_y[t * shape.features + c] *
        u[s * shape.features + c];
  });
  for (int64_t r = 0; r < rows * shape.heads; ++r) {
    const T* p = taps.data() + r * shape.kernel;
    const T* grad_p = grad_taps.data() + r * shape.kernel;
    T mean = T(0);
    for (int64_t j = 0; j < shape.kernel; ++j) mean += p[j] * grad_p[j];
    for (int64_t j = 0; j < shape.kernel; ++j) {
      grad_logits[r * shape.kernel + j] = p[j] * (grad_p[j] - mean);
    }
  }
}

}  // namespace thimble::kernels::reference
