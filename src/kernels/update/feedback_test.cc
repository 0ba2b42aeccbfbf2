// SPDX-License-Identifier: Apache-2.0
//
// Rounding errors that are handed on to the momentum.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/storage_reference.h"
#include "kernels/stored_tensor.h"
#include "kernels/testing.h"
#include "kernels/update/update.h"

namespace thimble::kernels {
namespace {

using testing::ForEachTarget;
using testing::StoredTensor;
using testing::TestContext;

// The minimum of element i of a quadratic, whose curvature is 1.
double MinimumOf(size_t i) { return 1.0 + 0.9 * (testing::TestValue(9, i)); }

// Parameters at every step of a descent from 1.5, all stored as `dtype`.
std::vector<std::vector<double>> Descend(DType dtype, SgdStep step, size_t n,
                                         int steps) {
  StoredTensor param(dtype, n), velocity(dtype, n), grad(DType::kF32, n);
  for (size_t i = 0; i < n; ++i) {
    param.Set(i, 1.5f);
    velocity.Set(i, 0.0f);
  }
  TestContext context(1);
  std::vector<std::vector<double>> path;
  for (int t = 0; t < steps; ++t) {
    for (size_t i = 0; i < n; ++i) {
      grad.Set(i, static_cast<float>(param.Get(i) - MinimumOf(i)));
    }
    SgdUpdate(static_cast<int64_t>(n), step, param.tensor(), grad.tensor(),
              velocity.tensor(), *context);
    path.push_back(param.Wide());
  }
  return path;
}

// The largest distance of an element.
double Distance(const std::vector<double>& a, const std::vector<double>& b) {
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::abs(a[i] - b[i]));
  }
  return most;
}

constexpr DType kNarrow[] = {DType::kF16, DType::kBF16};

// The rate is so small that a step is below half of the distance between
// neighbours long before the minimum: nearest rounding stands still there.
TEST(Feedback, ConvergesWhereNearestRoundingIsStuck) {
  constexpr size_t kCount = 40;
  ForEachTarget([] {
    for (const DType dtype : kNarrow) {
      for (const bool nesterov : {false, true}) {
        SCOPED_TRACE(::testing::Message()
                     << DTypeName(dtype) << (nesterov ? " nesterov" : ""));
        const reference::Format format = dtype == DType::kF16
                                             ? reference::kF16Format
                                             : reference::kBF16Format;
        const double ulp = reference::UlpOf(format, 1.5);
        // Ten times the rate, by the momentum: 0.1 from the minimum a step is
        // half of the distance between neighbours.
        const auto rate = static_cast<float>(ulp / 2);
        SgdStep step{.learning_rate = rate,
                     .momentum = 0.9f,
                     .nesterov = nesterov,
                     .next_learning_rate = rate};
        const int steps = static_cast<int>(8 * 0.1 / rate);
        const auto exact = Descend(DType::kF32, step, kCount, steps);
        const auto nearest = Descend(dtype, step, kCount, steps);
        step.rounding = Rounding::kFeedback;
        const auto feedback = Descend(dtype, step, kCount, steps);
        EXPECT_GT(Distance(nearest.back(), exact.back()), 8 * ulp);
        EXPECT_LE(Distance(feedback.back(), exact.back()), 2 * ulp);
        double worst = 0;
        for (size_t t = 0; t < exact.size(); ++t) {
          worst = std::max(worst, Distance(feedback[t], exact[t]));
        }
        // On the way, over a distance of 1.4 at most, the velocity's own
        // rounding counts too: half of an ulp(1) each time, ten times by the
        // momentum.
        EXPECT_LE(worst, 2 * ulp + 1.4 * 10 * ulp / 2);
      }
    }
  });
}

// Later steps without gradients move by exactly what was lost, whatever the
// rates: the next one is what counts.
TEST(Feedback, LaterStepsAddUpToTheError) {
  ForEachTarget([] {
    for (const DType dtype : kNarrow) {
      for (const bool nesterov : {false, true}) {
        StoredTensor param(dtype, 1), grad(DType::kF32, 1);
        StoredTensor velocity(DType::kF32, 1);
        param.Set(0, 1.0f);
        velocity.Set(0, 0.0f);
        const reference::Format format = dtype == DType::kF16
                                             ? reference::kF16Format
                                             : reference::kBF16Format;
        // One step to 1 − 0.3 ulp or so, which is stored as 1.
        const auto lost =
            static_cast<float>(-0.15 * reference::UlpOf(format, 1.0));
        const double momentum = 0.75;
        grad.Set(0, -lost / 0.5f / (nesterov ? 1.75f : 1.0f));
        const SgdStep step{.learning_rate = 0.5f,
                           .momentum = 0.75f,
                           .nesterov = nesterov,
                           .next_learning_rate = 0.125f,
                           .rounding = Rounding::kFeedback};
        TestContext context(1);
        SgdUpdate(1, step, param.tensor(), grad.tensor(), velocity.tensor(),
                  *context);
        ASSERT_EQ(param.Get(0), 1.0);
        // Without the feedback the velocity would be the gradient.
        const double added = velocity.Get(0) - grad.Get(0);
        double v = added, w = 0;
        for (int t = 0; t < 200; ++t) {
          v = momentum * v;
          w -= 0.125 * (nesterov ? momentum * v : v);
        }
        EXPECT_NEAR(w, lost, 1e-3 * std::abs(lost));
      }
    }
  });
}

TEST(Feedback, LeavesF32AsItIs) {
  ForEachTarget([] {
    const SgdStep nearest{.learning_rate = 0.1f, .momentum = 0.9f};
    SgdStep feedback = nearest;
    feedback.rounding = Rounding::kFeedback;
    EXPECT_EQ(Descend(DType::kF32, feedback, 40, 20),
              Descend(DType::kF32, nearest, 40, 20));
  });
}

}  // namespace
}  // namespace thimble::kernels
