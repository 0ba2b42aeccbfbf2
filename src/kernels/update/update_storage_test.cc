// SPDX-License-Identifier: Apache-2.0
//
// SGD with parameters, gradients and velocities in every storage type.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "base/rng.h"
#include "base/test_allocations.h"
#include "kernels/storage_reference.h"
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

constexpr DType kFloats[] = {DType::kF32, DType::kF16, DType::kBF16};
constexpr RandomAddress kUpdateRandom = {42, 3, UpdateStream(5)};

// The random bits of an element, by the rule of kernels/random.h.
uint32_t RandomBitsOf(const RandomAddress& random, uint64_t element) {
  const uint64_t group = element / kRandomGroup, at = element % kRandomGroup;
  const RandomStream stream(random.seed, random.step, random.stream);
  const auto block =
      static_cast<uint32_t>(group * kRandomBlocks + at % kRandomBlocks);
  return stream.Block(block)[at / kRandomBlocks];
}

// What f32 arithmetic gives, stored as `dtype`.
double Stored(DType dtype, Rounding rounding, float x, uint32_t random) {
  if (dtype == DType::kF32) return x;
  const reference::Format format =
      dtype == DType::kF16 ? reference::kF16Format : reference::kBF16Format;
  return rounding == Rounding::kStochastic
             ? reference::RoundedByChance(format, x, random)
             : reference::Rounded(format, x);
}

// Multiples of 1/32 in [-2, 2], which every type has.
void FillDyadic(StoredTensor& tensor, uint64_t seed) {
  for (size_t i = 0; i < tensor.size(); ++i) {
    tensor.Set(i, std::nearbyint(64 * testing::TestValue(seed, i)) / 32);
  }
}

struct Storages {
  DType param, grad, velocity;
};

std::vector<Storages> AllStorages() {
  std::vector<Storages> all;
  for (const DType param : kFloats) {
    for (const DType grad : kFloats) {
      for (const DType velocity : kFloats) {
        all.push_back({param, grad, velocity});
      }
    }
  }
  return all;
}

// A step whose arithmetic is exact in f32, so that on every target the result
// is the definition's, rounded once: every bit is known.
void ExpectExactStep(const Storages& as, const SgdStep& step, size_t n,
                     int threads) {
  StoredTensor param(as.param, n), grad(as.grad, n), velocity(as.velocity, n);
  FillDyadic(param, 1);
  FillDyadic(grad, 2);
  FillDyadic(velocity, 3);
  std::vector<double> want = param.Wide(), want_velocity = velocity.Wide();
  const bool has_velocity = step.momentum > 0;
  reference::SgdUpdate(static_cast<int64_t>(n), step, want.data(),
                       grad.Wide().data(),
                       has_velocity ? want_velocity.data() : nullptr);
  TestContext context(threads);
  SgdUpdate(static_cast<int64_t>(n), step, param.tensor(), grad.tensor(),
            has_velocity ? velocity.tensor() : Tensor::None(), *context);
  for (size_t i = 0; i < n; ++i) {
    const auto w = static_cast<float>(want[i]);
    ASSERT_EQ(w, want[i]) << "the example is not exact";
    ASSERT_EQ(param.Get(i),
              Stored(as.param, step.rounding, w, RandomBitsOf(step.random, i)))
        << i;
    const auto v = static_cast<float>(want_velocity[i]);
    ASSERT_EQ(v, want_velocity[i]) << "the example is not exact";
    ASSERT_EQ(velocity.Get(i), Stored(as.velocity, step.rounding, v,
                                      RandomBitsOf(step.random.Next(1), i)))
        << i;
  }
}

std::vector<SgdStep> ExactSteps() {
  std::vector<SgdStep> steps;
  for (const Rounding rounding : {Rounding::kNearest, Rounding::kStochastic}) {
    const SgdStep plain{.learning_rate = 0x1p-7f,
                        .weight_decay = 0x1p-5f,
                        .gradient_scale = 0x1p-2f,
                        .rounding = rounding,
                        .random = kUpdateRandom};
    SgdStep momentum = plain;
    momentum.momentum = 0.75f;
    SgdStep nesterov = momentum;
    nesterov.nesterov = true;
    steps.insert(steps.end(), {plain, momentum, nesterov});
  }
  return steps;
}

TEST(UpdateStorage, EveryCombinationIsTheDefinitionRoundedOnce) {
  ForEachTarget([] {
    for (const Storages& as : AllStorages()) {
      SCOPED_TRACE(::testing::Message()
                   << DTypeName(as.param) << " " << DTypeName(as.grad) << " "
                   << DTypeName(as.velocity));
      for (const SgdStep& step : ExactSteps()) {
        for (const size_t n : {1u, 63u, 65u, 1000u}) {
          ExpectExactStep(as, step, n, 1);
          if (::testing::Test::HasFailure()) return;
        }
      }
    }
  });
}

TEST(UpdateStorage, ThreadsChangeNoBit) {
  ForEachTarget([] {
    for (const int threads : {1, 2, 3}) {
      for (const SgdStep& step : ExactSteps()) {
        ExpectExactStep({DType::kF16, DType::kBF16, DType::kBF16}, step, 20001,
                        threads);
        if (::testing::Test::HasFailure()) return;
      }
    }
  });
}

// The random streams of a step, of its parameters and of what is kept of them
// are all different: else errors would not be independent.
TEST(UpdateStorage, EveryTensorAndStepDrawsItsOwnNumbers) {
  constexpr size_t kCount = 512;
  const auto run = [](uint64_t step, uint32_t position) {
    StoredTensor param(DType::kBF16, kCount), grad(DType::kF32, kCount);
    StoredTensor velocity(DType::kBF16, kCount);
    for (size_t i = 0; i < kCount; ++i) {
      param.Set(i, 0.0f);
      velocity.Set(i, 0.0f);
      grad.Set(i, -1.0f - 0x1p-8f);  // halfway, as velocity and as parameter
    }
    const SgdStep how{.learning_rate = 1.0f,
                      .momentum = 0.5f,
                      .rounding = Rounding::kStochastic,
                      .random = {1, step, UpdateStream(position)}};
    TestContext context(1);
    SgdUpdate(kCount, how, param.tensor(), grad.tensor(), velocity.tensor(),
              *context);
    std::vector<bool> up_param(kCount), up_velocity(kCount);
    for (size_t i = 0; i < kCount; ++i) {
      up_param[i] = param.Get(i) > 1;
      up_velocity[i] = velocity.Get(i) < -1;
    }
    return std::vector{up_param, up_velocity};
  };
  const auto same = [](const std::vector<bool>& a, const std::vector<bool>& b) {
    size_t count = 0;
    for (size_t i = 0; i < kCount; ++i) count += a[i] == b[i] ? 1 : 0;
    return static_cast<double>(count);
  };
  const auto first = run(1, 0);
  EXPECT_EQ(run(1, 0), first);
  const auto next_step = run(2, 0), next_parameter = run(1, 1);
  // Of independent bits half are the same, within five standard deviations.
  const double deviation = std::sqrt(kCount / 4.0);
  for (const auto& other : {first[1], next_step[0], next_step[1],
                            next_parameter[0], next_parameter[1]}) {
    EXPECT_NEAR(same(first[0], other), kCount / 2.0, 5 * deviation);
  }
}

// Numbers as they come: within f32's error of the definition and one rounding.
TEST(UpdateStorage, AnyNumbersAreWithinOneRounding) {
  const SgdStep step{.learning_rate = 0.2f,
                     .momentum = 0.7f,
                     .weight_decay = 0.1f,
                     .nesterov = true,
                     .gradient_scale = 0.3f};
  ForEachTarget([&] {
    for (const Storages& as : AllStorages()) {
      constexpr size_t kCount = 700;
      StoredTensor param(as.param, kCount, 1), grad(as.grad, kCount, 2);
      StoredTensor velocity(as.velocity, kCount, 3);
      std::vector<double> want = param.Wide(), want_v = velocity.Wide();
      reference::SgdUpdate(kCount, step, want.data(), grad.Wide().data(),
                           want_v.data());
      TestContext context(2);
      SgdUpdate(kCount, step, param.tensor(), grad.tensor(), velocity.tensor(),
                *context);
      for (size_t i = 0; i < kCount; ++i) {
        // Numbers are below 1, so the magnitudes' sums are below 3.
        ASSERT_NEAR(param.Get(i), want[i],
                    SumErrorBound(9, 3) + param.RoundingBound(want[i]));
        ASSERT_NEAR(velocity.Get(i), want_v[i],
                    SumErrorBound(5, 3) + velocity.RoundingBound(want_v[i]));
      }
    }
  });
}

TEST(UpdateStorage, NothingIsAllocated) {
  constexpr size_t kCount = 10000;
  StoredTensor param(DType::kF16, kCount, 1), grad(DType::kBF16, kCount, 2);
  StoredTensor velocity(DType::kBF16, kCount, 3);
  TestContext context(2);
  const Tensor p = param.tensor(), g = grad.tensor(), v = velocity.tensor();
  const std::vector<SgdStep> steps = ExactSteps();
  const int64_t before = AllocationCount();
  for (const SgdStep& step : steps) {
    SgdUpdate(kCount, step, p, g, v, *context);
  }
  EXPECT_EQ(AllocationCount(), before);
}

}  // namespace
}  // namespace thimble::kernels
