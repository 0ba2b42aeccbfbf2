// SPDX-License-Identifier: Apache-2.0
//
// Batch statistics in special cases, and the running statistics that follow
// them.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/norm/norm.h"
#include "kernels/norm/reference.h"
#include "kernels/norm/test_batch.h"
#include "kernels/testing.h"

namespace thimble::kernels {
namespace {

using testing::Batch;
using testing::Bits;
using testing::Doubles;
using testing::FillRandom;
using testing::ForEachTarget;
using testing::GuardedBuffer;
using testing::kEpsilon;
using testing::kUnit;
using testing::TestContext;
using testing::Wide;

TEST(BatchNorm, ConstantChannelHasNoVariance) {
  ForEachTarget([] {
    for (int64_t pixels : {1, 7, 3000}) {
      Batch batch({3, pixels}, 3, 0, 0.1f, 0.0f);
      GuardedBuffer<float> y(batch.size), mean(3), variance(3);
      TestContext context(1);
      BatchNormTrain(batch.shape, batch.images, kEpsilon, F32(batch.x.data()),
                     batch.gamma.data(), batch.beta.data(), F32(y.data()),
                     mean.data(), variance.data(), *context);
      for (size_t c = 0; c < 3; ++c) {
        EXPECT_EQ(mean[c], 0.1f);
        EXPECT_GE(variance[c], 0.0f);
        EXPECT_LE(variance[c], 0.1f * 0.1f * kUnit * kUnit);
      }
    }
  });
}

TEST(BatchNorm, NanShowsInTheStatistics) {
  ForEachTarget([] {
    for (int64_t pixels : {1, 100}) {
      Batch batch({1, pixels}, 3, 0);
      batch.x[batch.size - 1] = std::numeric_limits<float>::quiet_NaN();
      GuardedBuffer<float> mean(1), variance(1);
      TestContext context(1);
      BatchNormTrain(batch.shape, batch.images, kEpsilon, F32(batch.x.data()),
                     batch.gamma.data(), batch.beta.data(), F32(batch.x.data()),
                     mean.data(), variance.data(), *context);
      EXPECT_TRUE(std::isnan(mean[0]));
      EXPECT_TRUE(std::isnan(variance[0]));
    }
  });
}

TEST(BatchNorm, RunningStatisticsMatchReferenceAlsoInPlace) {
  ForEachTarget([] {
    for (int64_t channels = 0; channels <= 33; ++channels) {
      for (int64_t count : {1, 2, 50}) {
        const auto n = static_cast<size_t>(channels);
        GuardedBuffer<float> mean(n, 1), variance(n), old_mean(n, 3);
        GuardedBuffer<float> old_variance(n, 1), next_mean(n), next_var(n, 3);
        FillRandom(mean.span(), 1);
        FillRandom(variance.span(), 2);
        FillRandom(old_mean.span(), 3);
        FillRandom(old_variance.span(), 4);
        Doubles want_mean(n), want_variance(n);
        reference::BatchNormUpdateRunning(
            channels, count, 0.1f, Wide(mean).data(), Wide(variance).data(),
            Wide(old_mean).data(), Wide(old_variance).data(), want_mean.data(),
            want_variance.data());
        TestContext context(2);
        const auto run = [&](float* to_mean, float* to_variance) {
          BatchNormUpdateRunning(channels, count, 0.1f, mean.data(),
                                 variance.data(), old_mean.data(),
                                 old_variance.data(), to_mean, to_variance,
                                 *context);
        };
        run(next_mean.data(), next_var.data());
        run(old_mean.data(), old_variance.data());
        for (size_t c = 0; c < n; ++c) {
          // One rounding of a blend of values below 1, unbiased by at most 2.
          ASSERT_NEAR(next_mean[c], want_mean[c], kUnit);
          ASSERT_NEAR(next_var[c], want_variance[c], 2 * kUnit);
        }
        ASSERT_EQ(Bits(old_mean), Bits(next_mean));
        ASSERT_EQ(Bits(old_variance), Bits(next_var));
        for (const auto* b :
             {&old_mean, &old_variance, &next_mean, &next_var}) {
          b->CheckGuards("running");
        }
      }
    }
  });
}

}  // namespace
}  // namespace thimble::kernels
