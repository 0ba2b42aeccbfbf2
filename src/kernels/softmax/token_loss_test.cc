// SPDX-License-Identifier: Apache-2.0
#include "kernels/softmax/token_loss.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <vector>

#include "kernels/softmax/reference.h"
#include "kernels/softmax/test_rows.h"
#include "kernels/stored_tensor.h"
#include "kernels/testing.h"

namespace thimble::kernels {
namespace {

using testing::ForEachTarget;
using testing::GuardedBuffer;
using testing::kUnit;
using testing::Rows;
using testing::StoredTensor;
using testing::TestContext;

constexpr float kSmoothings[] = {0.0f, 0.1f, 0.5f};

struct Made {
  Made(const Rows& data, float smoothing, int threads)
      : loss(static_cast<size_t>(data.rows), 1),
        nll(static_cast<size_t>(data.rows), 1),
        hit(static_cast<size_t>(data.rows), 1) {
    TestContext context(threads);
    TokenLoss({data.classes, smoothing}, data.rows, data.logits.data(),
              data.labels.data(), {loss.data(), nll.data(), hit.data()},
              *context);
  }
  GuardedBuffer<float> loss, nll;
  GuardedBuffer<int32_t> hit;
};

// The sum's logarithm, and a mean of differences from it in f64; results are
// rounded.
void CheckLoss(const Rows& data, float smoothing) {
  const auto rows = static_cast<size_t>(data.rows);
  std::vector<double> loss(rows), nll(rows);
  reference::TokenLoss(data.rows, data.classes, data.wide.data(),
                       data.labels.data(), static_cast<double>(smoothing),
                       loss.data(), nll.data());
  const Made one(data, smoothing, 1), three(data, smoothing, 3);
  for (size_t r = 0; r < rows; ++r) {
    const auto row = static_cast<int64_t>(r);
    const double bound = data.SumError(row) + kUnit * std::fabs(loss[r]);
    ASSERT_NEAR(one.loss[r], loss[r], bound) << "row " << r;
    ASSERT_NEAR(one.nll[r], nll[r], data.SumError(row) + kUnit * nll[r]);
    const bool hit =
        reference::FirstLargest(data.classes, data.row(row)) == data.labels[r];
    ASSERT_EQ(one.hit[r], hit ? 1 : 0);
    ASSERT_EQ(one.loss[r], three.loss[r]);
    ASSERT_EQ(one.nll[r], three.nll[r]);
  }
  one.loss.CheckGuards("loss");
  one.nll.CheckGuards("nll");
  one.hit.CheckGuards("hit");
}

void CheckGrad(const Rows& data, float smoothing, DType dtype) {
  const double scale = 0.375;
  const size_t size = data.logits.size();
  std::vector<double> want(size), hot(size);
  reference::TokenLossGrad(data.rows, data.classes, data.wide.data(),
                           data.labels.data(), static_cast<double>(smoothing),
                           scale, want.data());
  // Bounds of a gradient without smoothing, and one more rounding of what is
  // taken away.
  reference::SoftmaxCrossEntropyGrad(data.rows, data.classes, data.wide.data(),
                                     data.labels.data(), scale, hot.data());
  const std::vector<double> bounds = data.GradBounds(scale, hot);
  StoredTensor one(dtype, size), three(dtype, size);
  for (StoredTensor* grad : {&one, &three}) {
    TestContext context(grad == &one ? 1 : 3);
    std::vector<float> logits(data.logits.data(), data.logits.data() + size);
    TokenLossGrad({data.classes, smoothing}, data.rows, logits.data(),
                  data.labels.data(), static_cast<float>(scale), 1.0f,
                  grad->tensor(), *context);
  }
  for (size_t i = 0; i < size; ++i) {
    const double smooth = 4 * kUnit * scale * static_cast<double>(smoothing);
    ASSERT_NEAR(one.Get(i), want[i],
                bounds[i] + smooth + one.RoundingBound(want[i]))
        << "element " << i;
    ASSERT_EQ(one.Get(i), three.Get(i));
  }
}

TEST(TokenLoss, AgreesWithItsDefinition) {
  ForEachTarget([] {
    for (const int64_t classes : {1, 2, 7, 16, 17, 33, 1000}) {
      for (const float smoothing : kSmoothings) {
        const Rows data(5, classes, 4.0f, 1);
        CheckLoss(data, smoothing);
        for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
          CheckGrad(data, smoothing, dtype);
        }
      }
    }
  });
}

TEST(TokenLoss, ItsGradientIsThatOfTheLoss) {
  constexpr int64_t kClasses = 9;
  constexpr double h = 1e-30, kSmoothing = 0.1;
  const Rows data(3, kClasses, 2.0f, 0);
  std::vector<double> grad(data.wide.size());
  reference::TokenLossGrad(data.rows, kClasses, data.wide.data(),
                           data.labels.data(), kSmoothing, 1.0, grad.data());
  std::vector<std::complex<double>> x(data.wide.begin(), data.wide.end());
  std::vector<std::complex<double>> loss(3), nll(3);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i].imag(h);
    reference::TokenLoss(data.rows, kClasses, x.data(), data.labels.data(),
                         kSmoothing, loss.data(), nll.data());
    x[i].imag(0);
    EXPECT_NEAR(loss[i / kClasses].imag() / h, grad[i], 1e-14);
  }
}

// A diverged run must show.
TEST(TokenLoss, OfNaNAndInfinityIsNaN) {
  ForEachTarget([] {
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(),
                            std::numeric_limits<float>::infinity()}) {
      Rows data(2, 21, 4.0f, 0);
      data.logits[21 + 3] = bad;
      const Made made(data, 0.1f, 1);
      EXPECT_TRUE(std::isfinite(made.loss[0]));
      EXPECT_TRUE(std::isnan(made.loss[1]));
      EXPECT_EQ(made.hit[1], 0);
    }
  });
}

}  // namespace
}  // namespace thimble::kernels
