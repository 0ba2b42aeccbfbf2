// SPDX-License-Identifier: Apache-2.0
#include "kernels/norm/fused.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/norm/reference.h"
#include "kernels/norm/test_batch.h"
#include "kernels/testing.h"

namespace thimble::kernels {
namespace {

using testing::Batch;
using testing::Bits;
using testing::ForEachTarget;
using testing::GuardedBuffer;
using testing::kEpsilon;
using testing::kUnit;
using testing::TestContext;
using testing::Wide;

const std::pair<BatchNormShape, int64_t> kCases[] = {
    {{1, 1}, 1},  {{3, 5}, 2},  {{2, 16}, 3},   {{4, 17}, 2},
    {{5, 33}, 1}, {{3, 49}, 4}, {{2, 1024}, 2}, {{7, 31}, 3}};

TEST(NormFactors, TurnNormalisationIntoOneMultiplyAdd) {
  const Batch b({6, 4}, 3, 0);
  std::vector<float> mean(6), variance(6), scale(6), shift(6), inv_std(6);
  for (size_t c = 0; c < 6; ++c) {
    mean[c] = testing::TestValue(1, c);
    variance[c] = 0.5f + std::abs(testing::TestValue(2, c));
  }
  NormFactors(6, kEpsilon, mean.data(), variance.data(), b.gamma.data(),
              b.beta.data(), scale.data(), shift.data(), inv_std.data());
  for (size_t c = 0; c < 6; ++c) {
    const double inverse = 1 / std::sqrt(double{variance[c]} + kEpsilon);
    EXPECT_NEAR(inv_std[c], inverse, kUnit * inverse);
    EXPECT_NEAR(scale[c], b.gamma[c] * inverse,
                kUnit * std::abs(b.gamma[c] * inverse));
    const double product = mean[c] * (b.gamma[c] * inverse);
    EXPECT_NEAR(shift[c], b.beta[c] - product,
                kUnit * (std::abs(double{b.beta[c]}) + std::abs(product)));
  }
}

// What three roundings of the terms and two of their sums may be off by.
double Bound(double of_grad, double offset, double of_x, double other) {
  return 5 * kUnit *
         (std::abs(of_grad) + std::abs(offset) + std::abs(of_x) +
          std::abs(other));
}

void CheckGradApply(const BatchNormShape& shape, int64_t images,
                    bool with_other, int threads) {
  const Batch b(shape, images, 1);
  const size_t channels = b.channels;
  GuardedBuffer<float> mean(channels), variance(channels), other(b.size, 3);
  GuardedBuffer<float> grad_gamma(channels), grad_beta(channels);
  testing::FillRandom(other.span(), 9);
  for (size_t c = 0; c < channels; ++c) {
    mean[c] = 0.5f + 0.1f * testing::TestValue(4, c);
    variance[c] = 0.3f + std::abs(testing::TestValue(5, c));
    grad_gamma[c] = 3 * testing::TestValue(6, c);
    grad_beta[c] = 3 * testing::TestValue(7, c);
  }
  GuardedBuffer<float> got(b.size, 2), in_place(b.size, 1);
  for (size_t i = 0; i < b.size; ++i) in_place[i] = b.grad_y[i];
  NormGradArguments a{.grad = b.grad_y.data(),
                      .x = b.x.data(),
                      .gamma = b.gamma.data(),
                      .mean = mean.data(),
                      .variance = variance.data(),
                      .grad_gamma = grad_gamma.data(),
                      .grad_beta = grad_beta.data(),
                      .other = with_other ? other.data() : nullptr,
                      .grad_x = got.data()};
  const TestContext context(threads);
  BatchNormGradApply(shape, images, kEpsilon, a, *context);
  a.grad = in_place.data();
  a.grad_x = in_place.data();
  BatchNormGradApply(shape, images, kEpsilon, a, *context);
  EXPECT_EQ(Bits(got), Bits(in_place));
  got.CheckGuards("grad_x");
  const auto count = static_cast<double>(images * shape.pixels);
  reference::ForEachPixel(shape, images, [&](int64_t channel, int64_t index) {
    const auto c = static_cast<size_t>(channel);
    const auto i = static_cast<size_t>(index);
    const double inverse = 1 / std::sqrt(double{variance[c]} + kEpsilon);
    const double factor = b.gamma[c] * inverse;
    const double of_grad = factor * b.grad_y[i];
    const double offset = factor * grad_beta[c] / count;
    const double of_x =
        factor * (double{b.x[i]} - mean[c]) * inverse * grad_gamma[c] / count;
    const double more = with_other ? other[i] : 0.0;
    ASSERT_NEAR(got[i], of_grad - offset - of_x + more,
                Bound(of_grad, offset, of_x, more));
  });
}

TEST(BatchNormGradApply, MatchesItsFormulaAlsoInPlaceForAnyThreadCount) {
  ForEachTarget([] {
    for (const auto& [shape, images] : kCases) {
      for (bool with_other : {false, true}) {
        for (int threads : {1, 2, 3}) {
          SCOPED_TRACE(::testing::Message()
                       << shape.channels << "x" << shape.pixels << " "
                       << with_other << " " << threads);
          CheckGradApply(shape, images, with_other, threads);
        }
      }
    }
  });
}

TEST(BatchMoments, AreThoseOfBatchNormTrainToTheBit) {
  ForEachTarget([] {
    for (const auto& [shape, images] : kCases) {
      if (shape.pixels == 1) continue;  // Train has a path of its own there
      const Batch b(shape, images, 3);
      GuardedBuffer<float> y(b.size), mean(b.channels), variance(b.channels);
      GuardedBuffer<float> mean2(b.channels), variance2(b.channels);
      const TestContext context(2);
      BatchNormTrain(shape, images, kEpsilon, b.x.data(), b.gamma.data(),
                     b.beta.data(), y.data(), mean.data(), variance.data(),
                     *context);
      BatchMoments(shape, images, b.x.data(), mean2.data(), variance2.data(),
                   *context);
      EXPECT_EQ(Bits(mean), Bits(mean2));
      EXPECT_EQ(Bits(variance), Bits(variance2));
    }
  });
}

}  // namespace
}  // namespace thimble::kernels
