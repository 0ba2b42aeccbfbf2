// SPDX-License-Identifier: Apache-2.0
//
// The definition of softmax cross-entropy: scalar, for any element type T. With
// std::complex<double> the largest logit is that of the real parts; it cancels
// out of the result, so the loss stays analytic.
#pragma once

#include <cmath>
#include <complex>
#include <cstdint>

namespace thimble::kernels::reference {

// The first largest real part of n logits.
template <typename T>
int64_t FirstLargest(int64_t n, const T* logits) {
  int64_t best = 0;
  for (int64_t i = 1; i < n; ++i) {
    if (std::real(logits[i]) > std::real(logits[best])) best = i;
  }
  return best;
}

// Σ exp(logits − shift)
template <typename T>
T SumOfExponentials(int64_t n, const T* logits, double shift) {
  T sum = T(0);
  for (int64_t i = 0; i < n; ++i) sum += std::exp(logits[i] - T(shift));
  return sum;
}

template <typename T>
void SoftmaxCrossEntropy(int64_t rows, int64_t classes, const T* logits,
                         const int32_t* labels, T* loss, int32_t* correct) {
  *loss = T(0);
  *correct = 0;
  for (int64_t r = 0; r < rows; ++r, logits += classes) {
    const int64_t best = FirstLargest(classes, logits);
    const double shift = std::real(logits[best]);
    const T sum = SumOfExponentials(classes, logits, shift);
    *loss += std::log(sum) - (logits[labels[r]] - T(shift));
    if (best == labels[r]) ++*correct;
  }
  *loss /= T(static_cast<double>(rows));
}

template <typename T>
void SoftmaxCrossEntropyGrad(int64_t rows, int64_t classes, const T* logits,
                             const int32_t* labels, T scale, T* grad) {
  for (int64_t r = 0; r < rows; ++r, logits += classes, grad += classes) {
    const double shift = std::real(logits[FirstLargest(classes, logits)]);
    const T sum = SumOfExponentials(classes, logits, shift);
    for (int64_t c = 0; c < classes; ++c) {
      const T hot = T(c == labels[r] ? 1 : 0);
      grad[c] = (std::exp(logits[c] - T(shift)) / sum - hot) * scale;
    }
  }
}

// Label-smoothed loss of each row, and −log p(label) (token_loss.h).
template <typename T>
void TokenLoss(int64_t rows, int64_t classes, const T* logits,
               const int32_t* labels, double smoothing, T* loss, T* nll) {
  for (int64_t r = 0; r < rows; ++r, logits += classes) {
    const double shift = std::real(logits[FirstLargest(classes, logits)]);
    const T log_sum =
        std::log(SumOfExponentials(classes, logits, shift)) + T(shift);
    T mean = T(0);
    for (int64_t c = 0; c < classes; ++c) mean += log_sum - logits[c];
    mean /= T(static_cast<double>(classes));
    nll[r] = log_sum - logits[labels[r]];
    loss[r] = T(1.0 - smoothing) * nll[r] + T(smoothing) * mean;
  }
}

template <typename T>
void TokenLossGrad(int64_t rows, int64_t classes, const T* logits,
                   const int32_t* labels, double smoothing, T scale, T* grad) {
  for (int64_t r = 0; r < rows; ++r, logits += classes, grad += classes) {
    const double shift = std::real(logits[FirstLargest(classes, logits)]);
    const T sum = SumOfExponentials(classes, logits, shift);
    for (int64_t c = 0; c < classes; ++c) {
      const double hot = c == labels[r] ? 1.0 - smoothing : 0.0;
      const T goal = T(hot + smoothing / static_cast<double>(classes));
      grad[c] = (std::exp(logits[c] - T(shift)) / sum - goal) * scale;
    }
  }
}

}  // namespace thimble::kernels::reference
