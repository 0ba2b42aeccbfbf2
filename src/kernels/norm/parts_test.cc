// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/norm/norm.h"
#include "kernels/norm/reference.h"
#include "kernels/norm/test_batch.h"
#include "kernels/stored_tensor.h"
#include "kernels/testing.h"

namespace thimble::kernels {
namespace {

using testing::Batch;
using testing::Bits;
using testing::Doubles;
using testing::ForEachTarget;
using testing::GuardedBuffer;
using testing::kEpsilon;
using testing::kUnit;
using testing::Randoms;
using testing::StoredTensor;
using testing::TestContext;
using testing::TestValue;

struct Case {
  BatchNormShape shape;
  int64_t images;
};
const Case kCases[] = {{{1, 1}, 1},    {{3, 1}, 7},    {{5, 7}, 2},
                       {{2, 64}, 5},   {{3, 255}, 2},  {{2, 257}, 1},
                       {{2, 1024}, 3}, {{1, 1100}, 2}, {{17, 33}, 3}};

constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

size_t SizeOf(const Case& c) {
  return static_cast<size_t>(c.images * c.shape.channels * c.shape.pixels);
}

TEST(NormParts, CoefficientsAreTheDefinitionRoundedOnce) {
  constexpr int64_t kChannels = 37;
  const auto mean = Randoms(kChannels, 1, -3.0f, 3.0f);
  const auto variance = Randoms(kChannels, 2, 0.0f, 4.0f);
  const auto gamma = Randoms(kChannels, 3, -2.0f, 2.0f);
  const auto beta = Randoms(kChannels, 4, -2.0f, 2.0f);
  std::vector<float> scale(kChannels), shift(kChannels), inv_std(kChannels);
  BatchNormCoefficients(kChannels, kEpsilon, mean.data(), variance.data(),
                        gamma.data(), beta.data(), scale.data(), shift.data(),
                        inv_std.data());
  for (size_t c = 0; c < kChannels; ++c) {
    const double inverse =
        1.0 / std::sqrt(static_cast<double>(variance[c]) + kEpsilon);
    EXPECT_NEAR(inv_std[c], inverse, kUnit * inverse);
    EXPECT_NEAR(scale[c], gamma[c] * inverse,
                kUnit * std::abs(gamma[c] * inverse));
    const double want = beta[c] - static_cast<double>(mean[c]) * scale[c];
    EXPECT_NEAR(shift[c], want, kUnit * std::abs(want));
  }
}

// Fused and unfused plans agree to the bit.
TEST(NormParts, ApplyIsOneMultiplyAddWithTheCoefficients) {
  ForEachTarget([] {
    for (const Case& c : kCases) {
      const Batch batch(c.shape, c.images, 1);
      const TestContext context(2);
      GuardedBuffer<float> y(batch.size), mean(batch.channels);
      GuardedBuffer<float> variance(batch.channels);
      BatchNormTrain(c.shape, c.images, kEpsilon, F32(batch.x.data()),
                     batch.gamma.data(), batch.beta.data(), F32(y.data()),
                     mean.data(), variance.data(), *context);
      std::vector<float> scale(batch.channels), shift(batch.channels);
      BatchNormCoefficients(c.shape.channels, kEpsilon, mean.data(),
                            variance.data(), batch.gamma.data(),
                            batch.beta.data(), scale.data(), shift.data(),
                            nullptr);
      // SSE4 has no fused multiply-add.
      const bool fused = ActiveTarget() != Target::kSse4;
      reference::ForEachPixel(
          c.shape, c.images, [&](int64_t channel, int64_t at) {
            const auto i = static_cast<size_t>(at);
            const auto k = static_cast<size_t>(channel);
            volatile float product = batch.x[i] * scale[k];
            const float want = fused ? std::fma(batch.x[i], scale[k], shift[k])
                                     : product + shift[k];
            ASSERT_EQ(y[i], want) << i;
          });
    }
  });
}

TEST(NormParts, MomentsOfStoredTensors) {
  for (const Case& c : kCases) {
    for (DType type : kTypes) {
      StoredTensor x(type, SizeOf(c), 5);
      // The same values in f32.
      Batch batch(c.shape, c.images, 0);
      for (size_t i = 0; i < batch.size; ++i) {
        batch.x[i] = static_cast<float>(x.Get(i));
      }
      Doubles want_mean(batch.channels), want_variance(batch.channels);
      reference::BatchNormStatistics(c.shape, c.images, x.Wide().data(),
                                     want_mean.data(), want_variance.data());
      const testing::StatisticsBounds bounds(batch, want_mean, want_variance);
      ForEachTarget([&] {
        for (int threads : {1, 2, 3}) {
          const TestContext context(threads);
          GuardedBuffer<float> mean(batch.channels), variance(batch.channels);
          BatchNormMoments(c.shape, c.images, x.tensor(), mean.data(),
                           variance.data(), *context);
          mean.CheckGuards("mean");
          variance.CheckGuards("variance");
          for (size_t k = 0; k < batch.channels; ++k) {
            ASSERT_NEAR(mean[k], want_mean[k], bounds.mean[k]);
            ASSERT_NEAR(variance[k], want_variance[k], bounds.variance[k]);
          }
          if (c.shape.pixels == 1) continue;
          GuardedBuffer<float> y(batch.size), m(batch.channels);
          GuardedBuffer<float> v(batch.channels);
          BatchNormTrain(c.shape, c.images, kEpsilon, F32(batch.x.data()),
                         batch.gamma.data(), batch.beta.data(), F32(y.data()),
                         m.data(), v.data(), *context);
          ASSERT_EQ(Bits(mean), Bits(m));
          ASSERT_EQ(Bits(variance), Bits(v));
        }
      });
    }
  }
}

// Parameters and sums of one case.
struct Sums {
  std::vector<float> gamma, mean, inv_std, grad_gamma, grad_beta;
  explicit Sums(int64_t channels)
      : gamma(Randoms(channels, 6, -2.0f, 2.0f)),
        mean(Randoms(channels, 7, -1.0f, 1.0f)),
        inv_std(Randoms(channels, 8, 0.5f, 2.0f)),
        grad_gamma(Randoms(channels, 9, -9.0f, 9.0f)),
        grad_beta(Randoms(channels, 10, -9.0f, 9.0f)) {}
  BatchNormGradSums get() const {
    return {gamma.data(), mean.data(), inv_std.data(), grad_gamma.data(),
            grad_beta.data()};
  }
};

void CheckGradRest(const Case& c, DType of_d, DType of_x, DType of_out,
                   bool residual, bool in_place) {
  const Sums sums(c.shape.channels);
  StoredTensor x(of_x, SizeOf(c), 2), r(of_out, SizeOf(c), 3);
  StoredTensor source(of_d, SizeOf(c), 1);
  const double m = static_cast<double>(c.images * c.shape.pixels);
  ForEachTarget([&] {
    std::vector<uint8_t> first;
    for (int threads : {1, 2, 3}) {
      const TestContext context(threads);
      StoredTensor d(of_d, SizeOf(c), 1), elsewhere(of_out, SizeOf(c));
      StoredTensor& out = in_place ? d : elsewhere;
      BatchNormGradRest(c.shape, c.images, d.tensor(), x.tensor(), sums.get(),
                        residual ? r.tensor() : Tensor::None(), out.tensor(),
                        *context);
      reference::ForEachPixel(
          c.shape, c.images, [&](int64_t channel, int64_t at) {
            const auto i = static_cast<size_t>(at);
            const auto k = static_cast<size_t>(channel);
            const double factor =
                static_cast<double>(sums.gamma[k]) * sums.inv_std[k];
            const double parts[] = {
                factor * source.Get(i), -factor * sums.grad_beta[k] / m,
                -factor * sums.inv_std[k] * (x.Get(i) - sums.mean[k]) *
                    sums.grad_gamma[k] / m,
                residual ? r.Get(i) : 0.0};
            double want = 0, magnitude = 0;
            for (double part : parts) {
              want += part;
              magnitude += std::abs(part);
            }
            const double bound = testing::SumErrorBound(6, magnitude);
            ASSERT_NEAR(out.Get(i), want,
                        bound + out.RoundingBound(std::abs(want) + bound))
                << i;
          });
      if (threads == 1) first = out.Bytes();
      ASSERT_EQ(out.Bytes(), first);
    }
  });
}

TEST(NormParts, GradRestMatchesReference) {
  for (const Case& c : kCases) {
    for (DType of_d : kTypes) {
      for (DType of_x : kTypes) {
        for (DType of_out : kTypes) {
          const bool residual = of_x == of_out;
          CheckGradRest(c, of_d, of_x, of_out, residual, of_d == of_out);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// With the sums that belong to it, the parts make up the whole gradient.
TEST(NormParts, PartsMakeUpTheReferenceGradient) {
  const BatchNormShape shape = {4, 50};
  constexpr int64_t kImages = 3;
  const Batch batch(shape, kImages, 0);
  Doubles mean(4), variance(4), gx(batch.size), gg(4), gb(4);
  reference::BatchNormStatistics(shape, kImages, Wide(batch.x).data(),
                                 mean.data(), variance.data());
  reference::BatchNormGrad(shape, kImages, kEpsilon, Wide(batch.x).data(),
                           Wide(batch.gamma).data(), mean.data(),
                           variance.data(), Wide(batch.grad_y).data(),
                           gx.data(), gg.data(), gb.data());
  std::vector<float> m(mean.begin(), mean.end()), inv(4);
  std::vector<float> grad_gamma(gg.begin(), gg.end());
  std::vector<float> grad_beta(gb.begin(), gb.end());
  for (size_t c = 0; c < 4; ++c) {
    inv[c] = static_cast<float>(1.0 / std::sqrt(variance[c] + kEpsilon));
  }
  const TestContext context(2);
  GuardedBuffer<float> got(batch.size);
  BatchNormGradRest(shape, kImages, F32(batch.grad_y.data()),
                    F32(batch.x.data()),
                    {batch.gamma.data(), m.data(), inv.data(),
                     grad_gamma.data(), grad_beta.data()},
                    ConstTensor::None(), F32(got.data()), *context);
  for (size_t i = 0; i < batch.size; ++i) {
    // Every operand was rounded to f32, and terms are at most about 10.
    EXPECT_NEAR(got[i], gx[i], 16 * kUnit * 10);
  }
}

}  // namespace
}  // namespace thimble::kernels
