// SPDX-License-Identifier: Apache-2.0
//
// The definition of attention: scalar, for any element type T. With
// std::complex<double> it stays analytic, as softmax does.
#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <vector>

#include "base/rng.h"
#include "kernels/attention/attention.h"
#include "kernels/dynamic_conv/reference.h"

namespace thimble::kernels::reference {

// What dropout multiplies the probability of a key with, by its place in its
// sentence.
inline double AttentionFactor(const AttentionShape& shape,
                              const DropoutMask& mask, int64_t query,
                              int64_t head, int64_t key) {
  constexpr auto kGroup = static_cast<int64_t>(kDropoutGroup);
  constexpr auto kBlocks = static_cast<int64_t>(kDropoutBlocks);
  const AttentionCounters counters =
      AttentionCountersOf(shape, mask, query, head, key / kGroup);
  const PhiloxBlock bits =
      RandomStream(mask.seed, counters.step, mask.stream)
          .Block(counters.first + static_cast<uint32_t>(key % kBlocks));
  const auto word = static_cast<size_t>(key % kGroup / kBlocks);
  const bool keeps = UniformFromBits(bits[word]) >= mask.rate;
  return keeps ? static_cast<double>(mask.scale()) : 0.0;
}

// One query of one head: where its features begin, and the keys that it looks
// at, from row `first` on.
struct AttentionQuery {
  int64_t row, head, first, count;
};

template <typename F>
void ForEachQuery(const AttentionShape& shape, const Sentences& queries,
                  const Sentences& keys, const F& f) {
  for (int64_t n = 0; n < queries.count; ++n) {
    for (int64_t t = queries.begin(n); t < queries.end(n); ++t) {
      int64_t count = keys.end(n) - keys.begin(n);
      if (shape.causal) count = std::min(count, t - queries.begin(n) + 1);
      for (int64_t h = 0; h < shape.heads; ++h) {
        f(AttentionQuery{t, h, keys.begin(n), count});
      }
    }
  }
}

template <typename T>
T DotOf(int64_t n, const T* a, const T* b) {
  T sum = T(0);
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

template <typename T>
std::vector<T> Probabilities(const AttentionShape& shape,
                             const AttentionQuery& query, const T* q,
                             const T* k) {
  const int64_t at = query.head * shape.width();
  const double scale = 1.0 / std::sqrt(static_cast<double>(shape.width()));
  std::vector<T> p(static_cast<size_t>(query.count));
  for (int64_t s = 0; s < query.count; ++s) {
    p[static_cast<size_t>(s)] =
        T(scale) * DotOf(shape.width(), q + query.row * shape.features + at,
                         k + (query.first + s) * shape.features + at);
  }
  if (!p.empty()) Softmax(query.count, p.data(), p.data());
  return p;
}

template <typename T>
void Attention(const AttentionShape& shape, const Sentences& queries,
               const Sentences& keys, const DropoutMask& mask, const T* q,
               const T* k, const T* v, T* y) {
  ForEachQuery(shape, queries, keys, [&](const AttentionQuery& query) {
    const std::vector<T> p = Probabilities(shape, query, q, k);
    const int64_t at = query.head * shape.width();
    for (int64_t c = at; c < at + shape.width(); ++c) {
      T sum = T(0);
      for (int64_t s = 0; s < query.count; ++s) {
        sum += p[static_cast<size_t>(s)] *
               T(AttentionFactor(shape, mask, query.row, query.head, s)) *
               v[(query.first + s) * shape.features + c];
      }
      y[query.row * shape.features + c] = sum;
    }
  });
}

template <typename T>
void AttentionGrad(const AttentionShape& shape, const Sentences& queries,
                   const Sentences& keys, const DropoutMask& mask, const T* q,
                   const T* k, const T* v, const T* grad_y, T* grad_q,
                   T* grad_k, T* grad_v) {
  std::fill(grad_q, grad_q + queries.rows() * shape.features, T(0));
  std::fill(grad_k, grad_k + keys.rows() * shape.features, T(0));
  std::fill(grad_v, grad_v + keys.rows() * shape.features, T(0));
  const double scale = 1.0 / std::sqrt(static_cast<double>(shape.width()));
  ForEachQuery(shape, queries, keys, [&](const AttentionQuery& query) {
    const std::vector<T> p = Probabilities(shape, query, q, k);
    const int64_t width = shape.width();
    const int64_t at = query.row * shape.features + query.head * width;
    std::vector<T> grad_p(p.size());
    T mean = T(0);
    for (size_t s = 0; s < p.size(); ++s) {
      const auto key = static_cast<int64_t>(s);
      const int64_t other =
          (query.first + key) * shape.features + query.head * width;
      const T factor =
          T(AttentionFactor(shape, mask, query.row, query.head, key));
      grad_p[s] = factor * DotOf(width, grad_y + at, v + other);
      mean += p[s] * grad_p[s];
      for (int64_t c = 0; c < width; ++c) {
        grad_v[other + c] += p[s] * factor * grad_y[at + c];
      }
    }
    for (size_t s = 0; s < p.size(); ++s) {
      const int64_t other =
          (query.first + static_cast<int64_t>(s)) * shape.features +
          query.head * width;
      const T grad_logit = T(scale) * p[s] * (grad_p[s] - mean);
      for (int64_t c = 0; c < width; ++c) {
        grad_q[at + c] += grad_logit * k[other + c];
        grad_k[other + c] += grad_logit * q[at + c];
      }
    }
  });
}

}  // namespace thimble::kernels::reference
