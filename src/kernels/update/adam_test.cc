// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "base/rng.h"
#include "base/test_allocations.h"
#include "kernels/stored_tensor.h"
#include "kernels/testing.h"
#include "kernels/update/reference.h"
#include "kernels/update/update.h"

namespace thimble::kernels {
namespace {

using testing::ForEachTarget;
using testing::StoredTensor;
using testing::SumErrorBound;
using testing::TestContext;
using testing::TestValue;

constexpr DType kStored[] = {DType::kF32, DType::kF16, DType::kBF16};

const AdamStep kAdamSteps[] = {
    {.learning_rate = 0.01f},
    {.learning_rate = 0.1f, .weight_decay = 0.05, .number = 3},
    {.learning_rate = 0.1f,
     .beta2 = 0.98,
     .weight_decay = 0.1,
     .decoupled = true,
     .number = 1000,
     .gradient_scale = 0.25f},
    {.learning_rate = 0.1f, .beta1 = 0.0, .epsilon = 1e-3, .number = 7},
};

// A parameter with what Adam keeps of it.
class AdamParameter {
 public:
  AdamParameter(DType param, DType grad, DType state, size_t n)
      : param_(param, n, 1),
        grad_(grad, n, 2),
        first_(state, n),
        second_(state, n) {
    for (size_t i = 0; i < n; ++i) {
      first_.Set(i, 0.0f);
      second_.Set(i, 0.0f);
    }
  }

  StoredTensor& param() { return param_; }
  StoredTensor& grad() { return grad_; }
  StoredTensor& stored_second() { return second_; }

  void Update(const AdamStep& step, int threads) {
    TestContext context(threads);
    Update(step, *context);
  }
  void Update(const AdamStep& step, const KernelContext& context) {
    AdamUpdate(static_cast<int64_t>(param_.size()), step, param_.tensor(),
               grad_.tensor(),
               {first_.tensor(), second_.tensor(), &scales_[0], &scales_[1]},
               context);
  }

  double scale(size_t moment) const {
    return first_.dtype() == DType::kF16 ? scales_[moment] : 1.0;
  }
  std::vector<double> First() { return Decoded(first_, scale(0)); }
  std::vector<double> Second() { return Decoded(second_, scale(1)); }
  // What storing a moment may change it by. A second one is never put to 0.
  double MomentBound(size_t moment, double x) {
    const double s = scale(moment);
    double bound = s * first_.RoundingBound(x / s);
    if (moment == 1 && first_.dtype() == DType::kF16) bound *= 2;
    return bound;
  }
  std::vector<uint8_t> Bytes() {
    std::vector<uint8_t> all;
    for (StoredTensor* t : {&param_, &first_, &second_}) {
      const std::vector<uint8_t> bytes = t->Bytes();
      all.insert(all.end(), bytes.begin(), bytes.end());
    }
    return all;
  }

 private:
  static std::vector<double> Decoded(StoredTensor& tensor, double scale) {
    std::vector<double> values = tensor.Wide();
    for (double& value : values) value *= scale;
    return values;
  }

  StoredTensor param_, grad_, first_, second_;
  float scales_[2] = {0.0f, 0.0f};
};

// Each of several steps against the definition in f64, from what was stored.
// What is rounded in f32 is bounded by the magnitudes that are added up.
void ExpectDefinition(DType param, DType grad, DType state,
                      const AdamStep& first) {
  constexpr size_t kCount = 700;
  AdamParameter a(param, grad, state, kCount);
  AdamStep step = first;
  for (int t = 0; t < 3; ++t, ++step.number) {
    const std::vector<double> before = a.param().Wide(), g = a.grad().Wide();
    const std::vector<double> m_before = a.First();
    std::vector<double> want = before, m = m_before, v = a.Second();
    reference::AdamUpdate(kCount, step, want.data(), g.data(), m.data(),
                          v.data());
    a.Update(step, 1 + t);
    const auto number = static_cast<double>(step.number);
    const double rate = step.learning_rate / (1 - std::pow(step.beta1, number));
    const double correct = std::sqrt(1 - std::pow(step.beta2, number));
    const std::vector<double> got_m = a.First(), got_v = a.Second();
    for (size_t i = 0; i < kCount; ++i) {
      const double largest = std::abs(g[i]) * step.gradient_scale +
                             step.weight_decay * std::abs(before[i]) +
                             std::abs(m_before[i]);
      ASSERT_NEAR(got_m[i], m[i],
                  SumErrorBound(6, largest) + a.MomentBound(0, m[i]));
      // Only squares are added; a gradient that is a sum is rounded before.
      const double square = v[i] + 2 * largest * largest * (1 - step.beta2);
      ASSERT_NEAR(got_v[i], v[i],
                  SumErrorBound(8, square) + a.MomentBound(1, v[i]));
      const double below = std::sqrt(v[i]) / correct + step.epsilon;
      const double off_v = SumErrorBound(8, square) / (2 * std::sqrt(v[i]));
      const double bound =
          SumErrorBound(12, std::abs(before[i]) + rate * largest / below) +
          rate * largest / below * (off_v / correct / below);
      ASSERT_NEAR(a.param().Get(i), want[i],
                  bound + a.param().RoundingBound(want[i]))
          << i;
    }
  }
}

TEST(Adam, EveryStorageIsTheDefinitionRoundedOnce) {
  ForEachTarget([] {
    for (const DType param : kStored) {
      for (const DType grad : kStored) {
        for (const DType state : kStored) {
          SCOPED_TRACE(std::string(DTypeName(param)) + " " + DTypeName(grad) +
                       " " + DTypeName(state));
          for (const AdamStep& step : kAdamSteps) {
            ExpectDefinition(param, grad, state, step);
            if (::testing::Test::HasFailure()) return;
          }
        }
      }
    }
  });
}

// What its bias correction is for.
TEST(Adam, AFirstStepGoesAsFarAsTheRateWhateverTheGradient) {
  ForEachTarget([] {
    AdamParameter a(DType::kF32, DType::kF32, DType::kF32, 100);
    for (size_t i = 0; i < 100; ++i) {
      a.grad().Set(i, std::ldexp(TestValue(4, i), static_cast<int>(i % 20)));
    }
    const std::vector<double> before = a.param().Wide();
    a.Update({.learning_rate = 0.125f}, 1);
    for (size_t i = 0; i < 100; ++i) {
      const double moved = before[i] - a.param().Get(i);
      EXPECT_NEAR(
          moved, std::copysign(0.125, a.grad().Get(i)),
          SumErrorBound(8, 1.2) + 0.125 * 1e-8 / std::abs(a.grad().Get(i)));
    }
  });
}

TEST(Adam, ThreadsChangeNoBit) {
  ForEachTarget([] {
    for (const DType state : kStored) {
      std::vector<uint8_t> one;
      for (const int threads : {1, 2, 3}) {
        AdamParameter a(DType::kBF16, DType::kF16, state, 20001);
        AdamStep step{.rounding = Rounding::kStochastic,
                      .random = {5, 6, UpdateStream(7)}};
        for (; step.number <= 3; ++step.number) a.Update(step, threads);
        if (threads == 1) one = a.Bytes();
        ASSERT_EQ(a.Bytes(), one) << threads << " threads";
      }
    }
  });
}

// Squares of small gradients are far below f16's least number: without a scale
// they would all be 0.
TEST(Adam, MomentsOfAnySizeFillTheRangeOfF16) {
  ForEachTarget([] {
    for (const int size : {-70, -40, -10, 0, 20}) {
      AdamParameter a(DType::kF32, DType::kF32, DType::kF16, 1000);
      for (size_t i = 0; i < 1000; ++i) {
        a.grad().Set(i, std::ldexp(TestValue(3, i), size));
      }
      a.Update({}, 2);
      double largest = 0;
      for (size_t i = 0; i < 1000; ++i) {
        const double g = a.grad().Get(i);
        const double v = 0.001 * g * g;
        // v is below 2^-139 for the least ones, where f32 itself has few bits.
        ASSERT_NEAR(a.Second()[i], v,
                    a.MomentBound(1, v) + v * 1e-6 + 0x1p-149);
        largest = std::max(largest, a.stored_second().Get(i));
        if (size > -70) {
          ASSERT_GT(a.stored_second().Get(i), 0);
        }
      }
      if (size == -70) continue;  // the scale is at its bound
      EXPECT_GT(largest, 0x1p14 * 0.999);
      EXPECT_LE(largest, 0x1p15);
    }
  });
}

// Else the next step would divide by next to nothing.
TEST(Adam, ASecondMomentDoesNotBecomeZero) {
  ForEachTarget([] {
    AdamParameter a(DType::kF32, DType::kF32, DType::kF16, 2);
    a.grad().Set(0, 1.0f);
    a.grad().Set(1, 1e-9f);
    a.Update({}, 1);
    EXPECT_EQ(a.stored_second().Get(1), 0x1p-24);
  });
}

TEST(Adam, WhatIsNotFiniteShows) {
  ForEachTarget([] {
    for (const DType state : kStored) {
      for (const float bad : {INFINITY, NAN}) {
        AdamParameter a(DType::kF32, DType::kF32, state, 100);
        a.grad().Set(77, bad);
        a.Update({}, 1);
        EXPECT_FALSE(std::isfinite(a.First()[77]));
        EXPECT_FALSE(std::isfinite(a.Second()[77]));
        EXPECT_FALSE(std::isfinite(a.param().Get(77)));
      }
    }
  });
}

TEST(Adam, NothingIsAllocated) {
  AdamParameter a(DType::kBF16, DType::kF16, DType::kF16, 10000);
  TestContext context(2);
  a.Update({}, *context);
  const int64_t before = AllocationCount();
  a.Update({.number = 2, .rounding = Rounding::kStochastic}, *context);
  EXPECT_EQ(AllocationCount(), before);
}

}  // namespace
}  // namespace thimble::kernels
