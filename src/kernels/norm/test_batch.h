// SPDX-License-Identifier: Apache-2.0
//
// Test only: batches to normalise, and bounds of the errors that their
// statistics may have.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/norm/norm.h"
#include "kernels/norm/reference.h"
#include "kernels/testing.h"

namespace thimble::kernels::testing {

using Doubles = std::vector<double>;

inline constexpr double kUnit = std::numeric_limits<float>::epsilon() / 2;
inline constexpr float kEpsilon = 1e-5f;

inline Doubles Wide(const GuardedBuffer<float>& values) {
  return {values.data(), values.data() + values.size()};
}

inline std::vector<uint32_t> Bits(const GuardedBuffer<float>& values) {
  std::vector<uint32_t> bits;
  for (size_t i = 0; i < values.size(); ++i) {
    bits.push_back(std::bit_cast<uint32_t>(values[i]));
  }
  return bits;
}

// Images x with channel means about `level` and values `spread` around them,
// gradients, and parameters away from 0.
struct Batch {
  Batch(const BatchNormShape& batch_shape, int64_t image_count, size_t misalign,
        float level = 0.5f, float spread = 1.0f)
      : shape(batch_shape),
        images(image_count),
        size(static_cast<size_t>(images * shape.channels * shape.pixels)),
        channels(static_cast<size_t>(shape.channels)),
        x(size, misalign),
        grad_y(size, misalign),
        gamma(channels, misalign),
        beta(channels, misalign) {
    for (size_t i = 0; i < size; ++i) {
      x[i] = level + spread * TestValue(1, i);
      grad_y[i] = TestValue(2, i) + 0.25f;
    }
    for (size_t c = 0; c < channels; ++c) {
      gamma[c] = 1.5f + TestValue(3, c);
      beta[c] = TestValue(4, c);
    }
  }
  double count() const { return static_cast<double>(images * shape.pixels); }

  BatchNormShape shape;
  int64_t images;
  size_t size;
  size_t channels;
  GuardedBuffer<float> x, grad_y, gamma, beta;
};

// Roundings that one term of an f32 partial sum can meet: those of its chain,
// of what is left over after whole rounds of chains, and of the fold.
inline double Roundings(const Batch& batch) {
  const int64_t chain = kBatchNormPiece / kBatchNormChains;
  const int64_t fold = 10;
  return static_cast<double>(std::min(batch.shape.pixels, chain) + fold);
}

// Bounds of the statistics' errors, from k roundings of f32 sums. The shift of
// a piece is off its mean by e ≤ (k+1)u·mean|x|. Deviations from shifts of
// single pieces are on average at most 2·mean|x − m| + e.
struct StatisticsBounds {
  StatisticsBounds(const Batch& batch, const Doubles& want_mean,
                   const Doubles& want_variance)
      : mean(batch.channels), variance(batch.channels) {
    Doubles size(batch.channels), off(batch.channels);
    reference::ForEachPixel(
        batch.shape, batch.images, [&](int64_t channel, int64_t at) {
          const auto c = static_cast<size_t>(channel);
          const double v = batch.x[static_cast<size_t>(at)];
          size[c] += std::fabs(v) / batch.count();
          off[c] += std::fabs(v - want_mean[c]) / batch.count();
        });
    const double k = Roundings(batch);
    for (size_t c = 0; c < batch.channels; ++c) {
      const double e = (k + 1) * kUnit * size[c];
      const double of_sum = (k + 2) * kUnit * (2 * off[c] + e);
      const double var = want_variance[c];
      mean[c] = of_sum + kUnit * std::fabs(want_mean[c]);
      // Σd², then (Σd)²/n, then the distance between pieces, then the result.
      variance[c] = (k + 4) * kUnit * (var + e * e) + 2 * e * of_sum +
                    2 * std::sqrt(var) * of_sum + kUnit * var;
    }
  }
  Doubles mean;
  Doubles variance;
};

}  // namespace thimble::kernels::testing
