// SPDX-License-Identifier: Apache-2.0
#include "kernels/softmax/softmax.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <complex>
#include <limits>
#include <tuple>
#include <vector>

#include "kernels/guard_page.h"
#include "kernels/softmax/reference.h"
#include "kernels/softmax/test_rows.h"
#include "kernels/testing.h"

namespace thimble::kernels {
namespace {

using testing::ForEachTarget;
using testing::GuardedBuffer;
using testing::GuardPageBuffer;
using testing::LossBound;
using testing::Rows;
using testing::TestContext;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<uint32_t> Bits(const GuardedBuffer<float>& values) {
  std::vector<uint32_t> bits;
  for (size_t i = 0; i < values.size(); ++i) {
    bits.push_back(std::bit_cast<uint32_t>(values[i]));
  }
  return bits;
}

void CheckLoss(const Rows& data) {
  double want = 0.0;
  int32_t want_correct = 0;
  reference::SoftmaxCrossEntropy(data.rows, data.classes, data.wide.data(),
                                 data.labels.data(), &want, &want_correct);
  std::vector<uint32_t> first;
  for (int threads : {1, 2, 3}) {
    TestContext context(threads, SoftmaxCrossEntropyWorkspace(data.rows));
    GuardedBuffer<float> loss(1, 1);
    GuardedBuffer<int32_t> correct(1, 1);
    SoftmaxCrossEntropy(data.rows, data.classes, F32(data.logits.data()),
                        data.labels.data(), loss.data(), correct.data(),
                        *context);
    ASSERT_NEAR(loss[0], want, LossBound(data, want));
    ASSERT_EQ(correct[0], want_correct);
    loss.CheckGuards("loss");
    correct.CheckGuards("correct");
    if (threads == 1) first = Bits(loss);
    ASSERT_EQ(Bits(loss), first);
  }
}

void CheckGrad(const Rows& data, size_t misalign) {
  const double scale = 0.375;
  const size_t size = data.logits.size();
  std::vector<double> want(size);
  reference::SoftmaxCrossEntropyGrad(data.rows, data.classes, data.wide.data(),
                                     data.labels.data(), scale, want.data());
  const std::vector<double> bounds = data.GradBounds(scale, want);
  std::vector<uint32_t> first;
  for (int threads : {1, 2, 3}) {
    TestContext context(threads);
    GuardedBuffer<float> grad(size, misalign), in_place(size, misalign);
    for (size_t i = 0; i < size; ++i) in_place[i] = data.logits[i];
    SoftmaxCrossEntropyGrad(data.rows, data.classes, F32(data.logits.data()),
                            data.labels.data(), static_cast<float>(scale), 1.0f,
                            F32(grad.data()), *context);
    SoftmaxCrossEntropyGrad(data.rows, data.classes, F32(in_place.data()),
                            data.labels.data(), static_cast<float>(scale), 1.0f,
                            F32(in_place.data()), *context);
    for (size_t i = 0; i < size; ++i) {
      ASSERT_NEAR(grad[i], want[i], bounds[i]) << "element " << i;
    }
    grad.CheckGuards("grad");
    in_place.CheckGuards("grad in place");
    if (threads == 1) first = Bits(grad);
    ASSERT_EQ(Bits(grad), first);
    ASSERT_EQ(Bits(in_place), first);
  }
}

std::vector<std::tuple<int64_t, int64_t>> Shapes() {
  std::vector<std::tuple<int64_t, int64_t>> shapes;
  for (int64_t classes = 1; classes <= 33; ++classes) {
    shapes.emplace_back(1 + classes % 5, classes);
  }
  shapes.insert(shapes.end(), {{64, 10}, {7, 1000}, {2, 10000}});
  return shapes;
}

TEST(Softmax, LossAndGradientMatchReferenceForAnyThreadCount) {
  ForEachTarget([] {
    for (const auto& [rows, classes] : Shapes()) {
      for (float spread : {0.01f, 4.0f, 60.0f}) {
        for (size_t misalign : {0, 1, 3}) {
          SCOPED_TRACE(::testing::Message() << rows << "x" << classes << " at "
                                            << misalign << " in " << spread);
          const Rows data(rows, classes, spread, misalign);
          CheckLoss(data);
          CheckGrad(data, misalign);
        }
      }
    }
  });
}

TEST(Softmax, StaysInsideItsTensors) {
  ForEachTarget([] {
    for (size_t classes = 1; classes <= 33; ++classes) {
      const auto c = static_cast<int64_t>(classes);
      GuardPageBuffer<float> logits(2 * classes), grad(2 * classes), loss(1);
      GuardPageBuffer<int32_t> labels(2), correct(1);
      labels[0] = labels[1] = static_cast<int32_t>(classes - 1);
      TestContext context(1, SoftmaxCrossEntropyWorkspace(2));
      SoftmaxCrossEntropy(2, c, F32(logits.data()), labels.data(), loss.data(),
                          correct.data(), *context);
      SoftmaxCrossEntropyGrad(2, c, F32(logits.data()), labels.data(), 1.0f,
                              1.0f, F32(grad.data()), *context);
    }
  });
}

TEST(Softmax, HugeLogitsNeitherOverflowNorLoseTheDifference) {
  ForEachTarget([] {
    GuardedBuffer<float> logits(3), loss(1), grad(3);
    GuardedBuffer<int32_t> labels(1), correct(1);
    logits[0] = 3e38f;
    logits[1] = -3e38f;
    logits[2] = 3e38f;
    labels[0] = 2;
    TestContext context(1, SoftmaxCrossEntropyWorkspace(1));
    SoftmaxCrossEntropy(1, 3, F32(logits.data()), labels.data(), loss.data(),
                        correct.data(), *context);
    SoftmaxCrossEntropyGrad(1, 3, F32(logits.data()), labels.data(), 1.0f, 1.0f,
                            F32(grad.data()), *context);
    EXPECT_EQ(loss[0], static_cast<float>(std::log(2.0)));
    EXPECT_EQ(correct[0], 0);  // the first of two largest is class 0
    EXPECT_EQ(grad[0], 0.5f);
    EXPECT_EQ(grad[1], 0.0f);
    EXPECT_EQ(grad[2], -0.5f);
  });
}

TEST(Softmax, FirstOfEqualLogitsIsTheGuess) {
  ForEachTarget([] {
    const int64_t classes = 37;
    TestContext context(1, SoftmaxCrossEntropyWorkspace(1));
    GuardedBuffer<float> logits(37, 1), loss(1);
    GuardedBuffer<int32_t> label(1), correct(1);
    for (int32_t first = 0; first < classes; ++first) {
      for (int32_t second = first; second < classes; ++second) {
        for (size_t i = 0; i < 37; ++i) logits[i] = -1.0f;
        logits[static_cast<size_t>(first)] = 2.0f;
        logits[static_cast<size_t>(second)] = 2.0f;
        for (int32_t guess : {first, second}) {
          label[0] = guess;
          SoftmaxCrossEntropy(1, classes, F32(logits.data()), label.data(),
                              loss.data(), correct.data(), *context);
          ASSERT_EQ(correct[0], guess == first ? 1 : 0) << first << second;
        }
      }
    }
  });
}

TEST(Softmax, NanAndInfinityShowInLossAndGradient) {
  ForEachTarget([] {
    for (size_t classes : {2, 5, 16, 37}) {
      for (size_t at = 0; at < classes; ++at) {
        for (float bad : {kNan, kInf}) {
          SCOPED_TRACE(::testing::Message() << at << " of " << classes);
          Rows data(1, static_cast<int64_t>(classes), 1.0f, 0);
          data.logits[at] = bad;
          data.labels[0] = static_cast<int32_t>(at);
          TestContext context(1, SoftmaxCrossEntropyWorkspace(1));
          GuardedBuffer<float> loss(1);
          GuardedBuffer<int32_t> correct(1);
          SoftmaxCrossEntropy(1, data.classes, F32(data.logits.data()),
                              data.labels.data(), loss.data(), correct.data(),
                              *context);
          EXPECT_TRUE(std::isnan(loss[0]));
          EXPECT_EQ(correct[0], 0);
          SoftmaxCrossEntropyGrad(1, data.classes, F32(data.logits.data()),
                                  data.labels.data(), 1.0f, 1.0f,
                                  F32(data.logits.data()), *context);
          for (size_t i = 0; i < classes; ++i) {
            EXPECT_TRUE(std::isnan(data.logits[i]));
          }
        }
      }
    }
  });
}

TEST(Softmax, MinusInfinityIsAClassThatCannotBe) {
  ForEachTarget([] {
    Rows data(1, 5, 1.0f, 0);
    data.logits[1] = -kInf;
    data.labels[0] = 0;
    TestContext context(1, SoftmaxCrossEntropyWorkspace(1));
    SoftmaxCrossEntropyGrad(1, 5, F32(data.logits.data()), data.labels.data(),
                            1.0f, 1.0f, F32(data.logits.data()), *context);
    EXPECT_EQ(data.logits[1], 0.0f);
    EXPECT_TRUE(std::isfinite(data.logits[0]));
  });
}

TEST(Softmax, ReferenceGradientIsTheComplexStepOfTheLoss) {
  using Complex = std::complex<double>;
  const Rows data(5, 7, 3.0f, 0);
  std::vector<double> grad(data.wide.size());
  reference::SoftmaxCrossEntropyGrad(5, 7, data.wide.data(), data.labels.data(),
                                     1.0 / 5.0, grad.data());
  std::vector<Complex> x(data.wide.begin(), data.wide.end());
  const double h = 1e-30;
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] += Complex(0.0, h);
    Complex loss;
    int32_t correct = 0;
    reference::SoftmaxCrossEntropy(5, 7, x.data(), data.labels.data(), &loss,
                                   &correct);
    x[i] = data.wide[i];
    // Seven exponentials, their sum, a division: tens of roundings of values
    // of at most 1.
    EXPECT_NEAR(grad[i], loss.imag() / h,
                64 * std::numeric_limits<double>::epsilon());
  }
}

}  // namespace
}  // namespace thimble::kernels
