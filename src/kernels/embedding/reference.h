// SPDX-License-Identifier: Apache-2.0
//
// The definition of embeddings: scalar, for any element type T (float, double,
// std::complex<double>: the function is analytic).
#pragma once

#include <cmath>
#include <complex>
#include <cstdint>

#include "kernels/embedding/embedding.h"
#include "kernels/sentences.h"

namespace thimble::kernels::reference {

// Element `i` of what is added at a position.
inline double Sinusoid(int64_t features, int64_t position, int64_t i) {
  const int64_t half = features / 2;
  const double frequency = std::pow(
      10000.0, -static_cast<double>(i % half) / static_cast<double>(half - 1));
  const double angle = static_cast<double>(position) * frequency;
  return i < half ? std::sin(angle) : std::cos(angle);
}

template <typename T>
void Embedding(const EmbeddingShape& shape, int64_t rows, double scale,
               const int32_t* tokens, const T* w, const Sentences* sentences,
               T* y) {
  for (int64_t r = 0; r < rows; ++r) {
    const T* row = w + tokens[r] * shape.features;
    int64_t position = 0;
    if (sentences != nullptr) {
      position = r - sentences->begin(sentences->Of(r)) + kFirstPosition;
    }
    for (int64_t i = 0; i < shape.features; ++i) {
      *y++ = T(scale) * row[i] +
             (sentences == nullptr ? T(0)
                                   : T(Sinusoid(shape.features, position, i)));
    }
  }
}

// Of the dense weight.
template <typename T>
void EmbeddingGrad(const EmbeddingShape& shape, int64_t rows, double scale,
                   const int32_t* tokens, const T* grad_y, T* grad_w) {
  const int64_t all = shape.vocabulary * shape.features;
  for (int64_t i = 0; i < all; ++i) grad_w[i] = T(0);
  for (int64_t r = 0; r < rows; ++r) {
    T* row = grad_w + tokens[r] * shape.features;
    for (int64_t i = 0; i < shape.features; ++i) row[i] += *grad_y++;
  }
  for (int64_t i = 0; i < all; ++i) grad_w[i] *= T(scale);
}

}  // namespace thimble::kernels::reference
