// SPDX-License-Identifier: Apache-2.0
#include "kernels/embedding/embedding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <numbers>
#include <vector>

#include "kernels/embedding/reference.h"
#include "kernels/embedding/test_text.h"
#include "kernels/stored_tensor.h"
#include "kernels/testing.h"

namespace thimble::kernels {
namespace {

using testing::Doubles;
using testing::ForEachFloatType;
using testing::ForEachTarget;
using testing::GuardedBuffer;
using testing::kFloatTypes;
using testing::kScale;
using testing::kUnit;
using testing::StoredTensor;
using testing::SumErrorBound;
using testing::TestContext;
using testing::TestText;

// What f32 may make of a sine or cosine: the angle's rest is rounded once, then
// there is a product and a sum for each of six terms of a series whose
// magnitudes add up to cosh(pi / 4) at most. What the series leaves out is
// below the first term that is not there.
double SinusoidBound() {
  const double quarter = std::numbers::pi / 4;
  const double series = std::pow(quarter, 11) / 39916800;  // 11!
  return SumErrorBound(12, std::cosh(quarter)) + series + quarter * kUnit;
}

void CheckForward(DType w_type, DType y_type, const TestText& text,
                  int64_t features, bool positions) {
  const EmbeddingShape shape = {text.vocabulary, features};
  const auto n = static_cast<size_t>(text.rows() * features);
  StoredTensor w(w_type, static_cast<size_t>(text.vocabulary * features), 1);
  const Sentences sentences = text.sentences();
  const Sentences* at = positions ? &sentences : nullptr;
  Doubles want(n);
  reference::Embedding(shape, text.rows(), double{kScale}, text.tokens.data(),
                       w.Wide().data(), at, want.data());
  std::vector<uint8_t> first;
  for (const int threads : {1, 2, 3}) {
    StoredTensor y(y_type, n, 2);
    const TestContext context(threads, EmbeddingWorkspace(shape));
    Embedding(shape, text.rows(), kScale, text.tokens.data(), w.tensor(), at,
              y.tensor(), *context);
    for (size_t i = 0; i < n; ++i) {
      // The product is below kScale, a sinusoid below 1.
      const double bound = (positions ? SinusoidBound() : 0.0) +
                           2 * kUnit * (double{kScale} + 1);
      const double rounding = y_type == DType::kF32
                                  ? 0.0
                                  : y.RoundingBound(std::abs(want[i]) + bound);
      ASSERT_NEAR(y.Get(i), want[i], bound + rounding) << "element " << i;
    }
    if (threads == 1) first = y.Bytes();
    ASSERT_EQ(y.Bytes(), first);
  }
}

TEST(Embedding, MatchesReferenceForAnyThreadCount) {
  ForEachTarget([] {
    size_t turn = 0;
    for (int64_t features = 1; features <= 36; ++features) {
      const TestText text(17, 5 + features % 7, 3);
      const DType w = kFloatTypes[turn % 3], y = kFloatTypes[turn / 3 % 3];
      ++turn;
      SCOPED_TRACE(::testing::Message() << features << " features, "
                                        << DTypeName(w) << DTypeName(y));
      CheckForward(w, y, text, features, false);
      if (features % 2 == 0 && features >= 4) {
        CheckForward(w, y, text, features, true);
        CheckForward(y, w, text, features, true);
      }
    }
    for (const DType dtype : kFloatTypes) {
      CheckForward(dtype, dtype, TestText(300, 64, 9), 130, true);
      CheckForward(dtype, dtype, TestText(5, 40, 30), 512, true);
    }
  });
}

// Far positions are as exact as near ones.
TEST(Embedding, AnglesLoseNothingInLongSentences) {
  constexpr int64_t kRows = 70'000, kFeatures = 6;
  const std::vector<float> w(kFeatures, 0.0f);
  const std::vector<int32_t> tokens(kRows, 0);
  const auto end = static_cast<int32_t>(kRows);
  const Sentences one = {1, &end};
  const EmbeddingShape shape = {1, kFeatures};
  ForEachTarget([&] {
    std::vector<float> y(kRows * kFeatures);
    const TestContext context(2, EmbeddingWorkspace(shape));
    Embedding(shape, kRows, 1.0f, tokens.data(), F32(w.data()), &one,
              F32(y.data()), *context);
    for (int64_t r = kRows - 2000; r < kRows; ++r) {
      for (int64_t i = 0; i < kFeatures; ++i) {
        ASSERT_NEAR(
            y[static_cast<size_t>(r * kFeatures + i)],
            reference::Sinusoid(kFeatures, r + kFirstPosition, i),
            // Frequencies, products of f64, and the angle in f64.
            SinusoidBound() + kRows * (kFeatures + 2.0) *
                                  std::numeric_limits<double>::epsilon())
            << r << " " << i;
      }
    }
  });
}

// A sentence is the same to the bit wherever it is.
TEST(Embedding, SentencesDoNotDependOnOthers) {
  ForEachFloatType([](DType dtype) {
    const TestText text(50, 41, 7);
    const EmbeddingShape shape = {text.vocabulary, 38};
    StoredTensor w(dtype, static_cast<size_t>(text.vocabulary * 38), 1);
    StoredTensor all(dtype, static_cast<size_t>(text.rows() * 38));
    const TestContext context(3, EmbeddingWorkspace(shape));
    const Sentences sentences = text.sentences();
    Embedding(shape, text.rows(), kScale, text.tokens.data(), w.tensor(),
              &sentences, all.tensor(), *context);
    for (int64_t s = 0; s < sentences.count; ++s) {
      const int64_t first = sentences.begin(s);
      const auto rows = static_cast<int32_t>(sentences.end(s) - first);
      const Sentences one = {1, &rows};
      StoredTensor alone(dtype, static_cast<size_t>(rows * 38));
      Embedding(shape, rows, kScale, text.tokens.data() + first, w.tensor(),
                &one, alone.tensor(), *context);
      for (size_t i = 0; i < alone.size(); ++i) {
        ASSERT_EQ(alone.Get(i), all.Get(static_cast<size_t>(first * 38) + i));
      }
    }
  });
}

// ---- Gradient

// The values that are there before, or none; the same for all threads.
void CheckGrad(DType y_type, DType w_type, const TestText& text,
               int64_t features, bool accumulate) {
  const EmbeddingShape shape = {text.vocabulary, features};
  const auto n = static_cast<size_t>(text.vocabulary * features);
  StoredTensor grad_y(y_type, static_cast<size_t>(text.rows() * features), 1);
  StoredTensor before(w_type, n, 2);
  Doubles want(n), size(n);
  const auto define = [&](const Doubles& from, Doubles& to) {
    reference::EmbeddingGrad(shape, text.rows(), double{kScale},
                             text.tokens.data(), from.data(), to.data());
  };
  define(grad_y.Wide(), want);
  define(testing::SizesOf(grad_y.Wide()), size);
  std::vector<uint8_t> first;
  for (const int threads : {1, 2, 3}) {
    StoredTensor grad_w(w_type, n);
    grad_w.CopyFrom(before);
    const TestContext context(threads,
                              EmbeddingGradWorkspace(shape, text.rows() + 3));
    EmbeddingGrad(shape, text.rows(), kScale, text.tokens.data(),
                  grad_y.tensor(),
                  {.to = grad_w.tensor(), .accumulate = accumulate}, *context);
    for (size_t i = 0; i < n; ++i) {
      const double old = accumulate ? before.Get(i) : 0.0;
      const double sum = want[i] + old;
      const double bound =
          size[i] == 0
              ? 0
              : SumErrorBound(text.rows() + 2, size[i] + std::abs(old));
      const double rounding = w_type == DType::kF32 || size[i] == 0
                                  ? 0.0
                                  : grad_w.RoundingBound(std::abs(sum) + bound);
      ASSERT_NEAR(grad_w.Get(i), sum, bound + rounding) << "element " << i;
    }
    if (threads == 1) first = grad_w.Bytes();
    ASSERT_EQ(grad_w.Bytes(), first);
  }
}

// Vocabularies of one to three digits of a sort; tokens that occur often, once,
// and not at all.
TEST(EmbeddingGrad, MatchesReferenceForAnyThreadCount) {
  ForEachTarget([] {
    size_t turn = 0;
    for (const bool accumulate : {false, true}) {
      for (int64_t features = 1; features <= 36; ++features) {
        const TestText text(7 + features % 20, 1 + features, 3);
        SCOPED_TRACE(::testing::Message() << features << " features");
        CheckGrad(kFloatTypes[turn % 3], kFloatTypes[turn / 3 % 3], text,
                  features, accumulate);
        ++turn;
      }
      for (const DType dtype : kFloatTypes) {
        SCOPED_TRACE(DTypeName(dtype));
        CheckGrad(dtype, dtype, TestText(1, 9, 3), 5, accumulate);
        CheckGrad(dtype, dtype, TestText(300, 500, 3), 19, accumulate);
        CheckGrad(dtype, dtype, TestText(70'000, 40, 3), 2, accumulate);
        CheckGrad(dtype, dtype, TestText(40, 130, 3), 512, accumulate);
      }
    }
  });
}

// Also in bits of f16 that no arithmetic would leave alone.
TEST(EmbeddingGrad, LeavesRowsAloneThatDoNotOccur) {
  ForEachTarget([] {
    const EmbeddingShape shape = {6, 3};
    const std::vector<int32_t> tokens = {4, 1, 4};
    const std::vector<float> grad_y(9, 1.0f);
    std::vector<uint16_t> grad_w(18, 0x7D01);  // a NaN that signals
    const TestContext context(2, EmbeddingGradWorkspace(shape, 3));
    const auto run = [&](bool accumulate) {
      EmbeddingGrad(
          shape, 3, 1.0f, tokens.data(), F32(grad_y.data()),
          {.to = {grad_w.data(), DType::kF16}, .accumulate = accumulate},
          *context);
    };
    run(true);
    for (size_t i = 0; i < grad_w.size(); ++i) {
      const bool occurs = i / 3 == 1 || i / 3 == 4;
      EXPECT_EQ(grad_w[i] == 0x7D01, !occurs) << i;
    }
    run(false);
    constexpr uint16_t kOne = 0x3C00, kTwo = 0x4000;
    for (size_t i = 0; i < grad_w.size(); ++i) {
      EXPECT_EQ(grad_w[i], i / 3 == 1 ? kOne : i / 3 == 4 ? kTwo : 0) << i;
    }
  });
}

// 1 is lost in 2^25 + 1, and stays where it comes last.
TEST(EmbeddingGrad, SumsGoInRowOrder) {
  ForEachTarget([] {
    const std::vector<int32_t> tokens = {1, 0, 1, 1, 0, 1, 0};
    const float big = 0x1p25f;
    const std::vector<float> grad_y = {big, 1, 1, -big, big, 4, -big};
    std::vector<float> grad_w(2);
    const TestContext context(2, EmbeddingGradWorkspace({2, 1}, 7));
    EmbeddingGrad({2, 1}, 7, 1.0f, tokens.data(), F32(grad_y.data()),
                  {.to = F32(grad_w.data())}, *context);
    EXPECT_EQ(grad_w, (std::vector<float>{0, 4}));
  });
}

TEST(EmbeddingGrad, WritesNothingOutsideOfMisalignedTensors) {
  ForEachTarget([] {
    for (const int64_t features : {4, 14, 16, 22, 66}) {
      for (const size_t misalign : {0, 1, 3}) {
        const TestText text(9, 13, 4);
        const EmbeddingShape shape = {9, features};
        const auto rows = static_cast<size_t>(text.rows() * features);
        const auto size = static_cast<size_t>(9 * features);
        GuardedBuffer<float> w(size, misalign), y(rows, misalign);
        GuardedBuffer<float> grad_w(size, misalign);
        testing::FillRandom(w.span(), 1);
        const Sentences sentences = text.sentences();
        const TestContext forward(2, EmbeddingWorkspace(shape));
        Embedding(shape, text.rows(), kScale, text.tokens.data(), F32(w.data()),
                  &sentences, F32(y.data()), *forward);
        const TestContext backward(2,
                                   EmbeddingGradWorkspace(shape, text.rows()));
        EmbeddingGrad(shape, text.rows(), kScale, text.tokens.data(),
                      F32(y.data()), {.to = F32(grad_w.data())}, *backward);
        for (const auto* b : {&w, &y, &grad_w}) b->CheckGuards("embedding");
      }
    }
  });
}

TEST(EmbeddingGrad, NoRowsHaveGradientsOfZero) {
  ForEachTarget([] {
    const EmbeddingShape shape = {3, 2};
    std::vector<float> grad_w(6, 7.0f);
    const TestContext context(2, EmbeddingGradWorkspace(shape, 4));
    EmbeddingGrad(shape, 0, 1.0f, nullptr, F32(grad_w.data()),
                  {.to = F32(grad_w.data())}, *context);
    EXPECT_EQ(grad_w, std::vector<float>(6, 0.0f));
  });
}

// The definition's gradient against the derivative of its forward pass by the
// complex step, which has no error but rounding.
TEST(EmbeddingReference, GradientIsThatOfTheForwardPass) {
  using Complex = std::complex<double>;
  constexpr double kStep = 1e-100;
  const TestText text(5, 9, 4);
  const EmbeddingShape shape = {5, 4};
  const Sentences sentences = text.sentences();
  std::vector<Complex> w(20, 0.5);
  Doubles grad_y(static_cast<size_t>(text.rows() * 4)), grad_w(20);
  for (size_t i = 0; i < grad_y.size(); ++i) {
    grad_y[i] = double{testing::TestValue(1, i)};
  }
  reference::EmbeddingGrad(shape, text.rows(), double{kScale},
                           text.tokens.data(), grad_y.data(), grad_w.data());
  for (size_t k = 0; k < w.size(); ++k) {
    std::vector<Complex> y(grad_y.size());
    w[k] += Complex(0, kStep);
    reference::Embedding(shape, text.rows(), double{kScale}, text.tokens.data(),
                         w.data(), &sentences, y.data());
    w[k] = w[k].real();
    double sum = 0;
    for (size_t i = 0; i < y.size(); ++i) sum += grad_y[i] * y[i].imag();
    EXPECT_NEAR(sum / kStep, grad_w[k],
                64 * std::numeric_limits<double>::epsilon())
        << k;
  }
}

}  // namespace
}  // namespace thimble::kernels
