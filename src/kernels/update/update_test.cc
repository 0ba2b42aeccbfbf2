// SPDX-License-Identifier: Apache-2.0
#include "kernels/update/update.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "kernels/guard_page.h"
#include "kernels/testing.h"
#include "kernels/update/reference.h"

namespace thimble::kernels {
namespace {

using testing::FillRandom;
using testing::ForEachTarget;
using testing::GuardedBuffer;
using testing::GuardPageBuffer;
using testing::SumErrorBound;
using testing::TestContext;

const SgdStep kSteps[] = {
    {.learning_rate = 0.1f},
    {.learning_rate = 0.3f, .weight_decay = 0.05f},
    {.learning_rate = 0.05f, .momentum = 0.9f},
    {.learning_rate = 0.2f, .momentum = 0.9f, .weight_decay = 0.01f},
    {.learning_rate = 0.2f,
     .momentum = 0.7f,
     .weight_decay = 0.1f,
     .nesterov = true},
};

std::vector<double> Wide(const GuardedBuffer<float>& values) {
  return {values.data(), values.data() + values.size()};
}

std::vector<uint32_t> Bits(const GuardedBuffer<float>& values) {
  std::vector<uint32_t> bits;
  for (size_t i = 0; i < values.size(); ++i) {
    bits.push_back(std::bit_cast<uint32_t>(values[i]));
  }
  return bits;
}

// Error bounds of one update, element by element. The longest chain of the
// formula rounds eight times (four products, four sums), and the update of the
// magnitudes, with every sum made of positive terms, bounds what is rounded.
struct Bounds {
  Bounds(const SgdStep& step, std::vector<double> param,
         std::vector<double> grad, std::vector<double> velocity,
         bool with_velocity) {
    for (auto* values : {&param, &grad, &velocity}) {
      for (double& value : *values) value = std::fabs(value);
    }
    SgdStep growing = step;
    growing.learning_rate = -step.learning_rate;
    reference::SgdUpdate(static_cast<int64_t>(param.size()), growing,
                         param.data(), grad.data(),
                         with_velocity ? velocity.data() : nullptr);
    for (double value : param) of_param.push_back(SumErrorBound(8, value));
    for (double value : velocity) {
      of_velocity.push_back(SumErrorBound(4, value));
    }
  }
  std::vector<double> of_param;
  std::vector<double> of_velocity;
};

void CheckUpdate(const SgdStep& step, int64_t n, size_t misalign,
                 bool with_velocity) {
  const auto size = static_cast<size_t>(n);
  GuardedBuffer<float> grad(size, misalign);
  FillRandom(grad.span(), 2);
  std::vector<uint32_t> first_param, first_velocity;
  for (int threads : {1, 2, 3}) {
    GuardedBuffer<float> param(size, misalign), velocity(size, 2);
    FillRandom(param.span(), 1);
    FillRandom(velocity.span(), 3);
    std::vector<double> want = Wide(param), want_velocity = Wide(velocity);
    const Bounds bounds(step, want, Wide(grad), want_velocity, with_velocity);
    reference::SgdUpdate(n, step, want.data(), Wide(grad).data(),
                         with_velocity ? want_velocity.data() : nullptr);
    TestContext context(threads);
    SgdUpdate(n, step, F32(param.data()), F32(grad.data()),
              with_velocity ? F32(velocity.data()) : Tensor::None(), *context);
    for (size_t i = 0; i < size; ++i) {
      ASSERT_NEAR(param[i], want[i], bounds.of_param[i]) << i;
      ASSERT_NEAR(velocity[i], want_velocity[i], bounds.of_velocity[i]) << i;
    }
    param.CheckGuards("param");
    velocity.CheckGuards("velocity");
    grad.CheckGuards("grad");
    if (threads == 1) {
      first_param = Bits(param);
      first_velocity = Bits(velocity);
    }
    ASSERT_EQ(Bits(param), first_param);
    ASSERT_EQ(Bits(velocity), first_velocity);
  }
}

TEST(Update, SgdMatchesReferenceForAnyThreadCount) {
  std::vector<int64_t> lengths;
  for (int64_t n = 0; n <= 33; ++n) lengths.push_back(n);
  lengths.insert(lengths.end(), {4095, 4097, 20001});
  ForEachTarget([&] {
    for (int64_t n : lengths) {
      for (size_t misalign : {0, 1, 3}) {
        SCOPED_TRACE(::testing::Message() << "n=" << n << " at " << misalign);
        for (const SgdStep& step : kSteps) {
          CheckUpdate(step, n, misalign, true);
          if (step.momentum == 0.0f) CheckUpdate(step, n, misalign, false);
        }
      }
    }
  });
}

TEST(Update, SgdStaysInsideItsTensors) {
  ForEachTarget([] {
    for (size_t n = 1; n <= 33; ++n) {
      GuardPageBuffer<float> param(n), grad(n), velocity(n);
      TestContext context(1);
      for (const SgdStep& step : kSteps) {
        SgdUpdate(static_cast<int64_t>(n), step, F32(param.data()),
                  F32(grad.data()), F32(velocity.data()), *context);
      }
      SgdUpdate(static_cast<int64_t>(n), kSteps[0], F32(param.data()),
                F32(grad.data()), Tensor::None(), *context);
    }
  });
}

TEST(Update, MomentumOfConstantGradientConvergesToItsGeometricSum) {
  ForEachTarget([] {
    GuardedBuffer<float> param(5), grad(5), velocity(5);
    for (size_t i = 0; i < 5; ++i) {
      param[i] = velocity[i] = 0.0f;
      grad[i] = 1.0f;
    }
    TestContext context(1);
    const SgdStep step{.learning_rate = 0.0f, .momentum = 0.5f};
    // 1 + 1/2 + … + 2^-11: each partial sum is exact in f32.
    for (int i = 0; i < 12; ++i) {
      SgdUpdate(5, step, F32(param.data()), F32(grad.data()),
                F32(velocity.data()), *context);
    }
    for (size_t i = 0; i < 5; ++i) {
      EXPECT_EQ(velocity[i], 2.0f - std::ldexp(1.0f, -11));
      EXPECT_EQ(param[i], 0.0f);
    }
  });
}

}  // namespace
}  // namespace thimble::kernels
