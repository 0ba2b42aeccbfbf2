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

// y from statistics that a kernel stored, and how far one in f32 may be off it:
// scale, shift, product and sum are rounded once each.
struct AppliedCase {
  AppliedCase(const Batch& batch, const GuardedBuffer<float>& mean,
              const GuardedBuffer<float>& variance)
      : y(batch.size), bound(batch.size) {
    reference::BatchNormApply(batch.shape, batch.images, kEpsilon,
                              Wide(batch.x).data(), Wide(batch.gamma).data(),
                              Wide(batch.beta).data(), Wide(mean).data(),
                              Wide(variance).data(), y.data());
    reference::ForEachPixel(
        batch.shape, batch.images, [&](int64_t channel, int64_t at) {
          const auto i = static_cast<size_t>(at);
          const auto c = static_cast<size_t>(channel);
          const double scale =
              batch.gamma[c] / std::sqrt(static_cast<double>(variance[c]) +
                                         static_cast<double>(kEpsilon));
          const double shift = batch.beta[c] - mean[c] * scale;
          const double magnitude = std::fabs(batch.x[i] * scale) +
                                   std::fabs(mean[c] * scale) +
                                   std::fabs(shift);
          bound[i] = SumErrorBound(2, magnitude);
        });
  }
  Doubles y, bound;
};

// What the gradient is computed from, the reference's results, and how far
// those in f32 may be off them.
struct GradCase {
  explicit GradCase(const Batch& batch)
      : mean(batch.channels, 1),
        variance(batch.channels, 3),
        x(batch.size),
        gamma(batch.channels),
        beta(batch.channels),
        bound_x(batch.size),
        bound_gamma(batch.channels),
        bound_beta(batch.channels) {
    Doubles m(batch.channels), v(batch.channels);
    reference::BatchNormStatistics(batch.shape, batch.images,
                                   Wide(batch.x).data(), m.data(), v.data());
    for (size_t c = 0; c < batch.channels; ++c) {
      mean[c] = static_cast<float>(m[c]);
      variance[c] = static_cast<float>(v[c]);
    }
    reference::BatchNormGrad(
        batch.shape, batch.images, kEpsilon, Wide(batch.x).data(),
        Wide(batch.gamma).data(), Wide(mean).data(), Wide(variance).data(),
        Wide(batch.grad_y).data(), x.data(), gamma.data(), beta.data());
    FindBounds(batch);
  }

  GuardedBuffer<float> mean, variance;
  Doubles x, gamma, beta;
  Doubles bound_x, bound_gamma, bound_beta;

 private:
  double InverseOf(size_t c) const {
    return 1.0 / std::sqrt(static_cast<double>(variance[c]) + kEpsilon);
  }

  // Of the two sums, then of grad_x: its formula rounds six times at most, and
  // the errors of the sums enter it divided by m.
  void FindBounds(const Batch& batch) {
    const auto normal = [&](size_t c, size_t i) {
      return std::fabs(static_cast<double>(batch.x[i]) - mean[c]) *
             InverseOf(c);
    };
    const double k = Roundings(batch);
    reference::ForEachPixel(
        batch.shape, batch.images, [&](int64_t channel, int64_t at) {
          const auto c = static_cast<size_t>(channel);
          const auto i = static_cast<size_t>(at);
          const double g = std::fabs(batch.grad_y[i]);
          bound_beta[c] += (k + 1) * kUnit * g;
          bound_gamma[c] += (k + 4) * kUnit * g * normal(c, i);
        });
    const double m = batch.count();
    reference::ForEachPixel(
        batch.shape, batch.images, [&](int64_t channel, int64_t at) {
          const auto c = static_cast<size_t>(channel);
          const auto i = static_cast<size_t>(at);
          const double n = normal(c, i);
          const double magnitude = std::fabs(batch.grad_y[i]) +
                                   std::fabs(beta[c]) / m +
                                   n * std::fabs(gamma[c]) / m;
          bound_x[i] = batch.gamma[c] * InverseOf(c) *
                       (SumErrorBound(4, magnitude) + bound_beta[c] / m +
                        n * bound_gamma[c] / m);
        });
  }
};

}  // namespace thimble::kernels::testing
