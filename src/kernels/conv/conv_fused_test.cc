// SPDX-License-Identifier: Apache-2.0
//
// The convolution and the weights' gradient in every storage type, with
// prologue and epilogues.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/conv/conv.h"
#include "kernels/conv/reference.h"
#include "kernels/conv/test_fused.h"
#include "kernels/stored_tensor.h"
#include "kernels/testing.h"

namespace thimble::kernels {
namespace {

using testing::Activate;
using testing::Activated;
using testing::CheckStatistics;
using testing::Coefficients;
using testing::ForEachTarget;
using testing::FusedCase;
using testing::FusedForm;
using testing::InputOf;
using testing::InputSize;
using testing::kFusedCases;
using testing::kFusedForms;
using testing::Magnitudes;
using testing::OutputSize;
using testing::StoredTensor;
using testing::SumErrorBound;
using testing::TestContext;
using testing::WeightSize;
using testing::Wide;

void CheckForward(const FusedCase& c, const FusedForm& form) {
  const Conv2dShape& s = c.shape;
  StoredTensor x(form.x, InputSize(c), 1), w(form.w, WeightSize(c), 2);
  StoredTensor residual(form.y, OutputSize(c), 3);
  const Coefficients k(form, s.in_channels);
  const Activated u = Activate(c, form, x, k);
  std::vector<double> want(OutputSize(c)), size(want.size()), off(want.size());
  reference::Conv2dForward(s, c.images, u.values.data(), w.Wide().data(),
                           want.data());
  reference::Conv2dForward(s, c.images, Magnitudes(u.values).data(),
                           Magnitudes(w.Wide()).data(), size.data());
  reference::Conv2dForward(s, c.images, u.bounds.data(),
                           Magnitudes(w.Wide()).data(), off.data());
  const Conv2dReduction reduction{form.reduce, c.images};
  ForEachTarget([&] {
    std::vector<uint8_t> first;
    std::vector<float> first_mean, first_variance;
    for (int threads : {1, 2, 3}) {
      SCOPED_TRACE(threads);
      const TestContext context(threads, Conv2dForwardWorkspace(s, reduction));
      StoredTensor y(form.y, OutputSize(c), 3);  // also the residual, in place
      std::vector<float> mean(static_cast<size_t>(s.out_channels));
      std::vector<float> variance(mean.size());
      Conv2dOutput output{.to = y.tensor()};
      // Once in place, once from elsewhere.
      if (form.residual) {
        output.residual = threads == 1 ? residual.tensor() : y.tensor();
      }
      if (form.reduce) {
        output.mean = mean.data();
        output.variance = variance.data();
      }
      Conv2dForward(s, c.images, InputOf(form, x, k), w.tensor(), output,
                    *context);
      const int64_t terms = s.in_channels * s.kernel_h * s.kernel_w + 1;
      for (size_t i = 0; i < want.size(); ++i) {
        const double r = form.residual ? residual.Get(i) : 0.0;
        const double bound =
            SumErrorBound(terms, size[i] + std::abs(r)) + off[i];
        const double value = want[i] + r;
        ASSERT_NEAR(y.Get(i), value,
                    bound + y.RoundingBound(std::abs(value) + bound))
            << "element " << i;
      }
      if (form.reduce) CheckStatistics(c, y, mean, variance);
      if (threads == 1) {
        first = y.Bytes();
        first_mean = mean;
        first_variance = variance;
      }
      ASSERT_EQ(y.Bytes(), first);
      ASSERT_EQ(mean, first_mean);
      ASSERT_EQ(variance, first_variance);
    }
  });
}

TEST(ConvFused, ForwardMatchesReference) {
  for (const FusedCase& c : kFusedCases) {
    for (const FusedForm& form : kFusedForms) {
      SCOPED_TRACE(::testing::Message() << "case " << (&c - kFusedCases)
                                        << " form " << (&form - kFusedForms));
      CheckForward(c, form);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(ConvFused, ResidualOfAnotherTypeIsRefused) {
  const Conv2dShape s = {1, 4, 4, 1, 1, 1, 1, 0};
  StoredTensor x(DType::kF32, 16, 1), w(DType::kF32, 1, 2);
  StoredTensor y(DType::kF32, 16), residual(DType::kF16, 16, 3);
  const TestContext context(1, Conv2dForwardWorkspace(s));
  EXPECT_DEATH(Conv2dForward(s, 1, {.x = x.tensor()}, w.tensor(),
                             {.to = y.tensor(), .residual = residual.tensor()},
                             *context),
               "check failed");
}

void CheckGradWeight(const FusedCase& c, const FusedForm& form,
                     bool accumulate) {
  const Conv2dShape& s = c.shape;
  StoredTensor x(form.x, InputSize(c), 1), grad_y(form.y, OutputSize(c), 2);
  StoredTensor before(form.w, WeightSize(c), 3);
  const Coefficients k(form, s.in_channels);
  const Activated u = Activate(c, form, x, k);
  std::vector<double> want(WeightSize(c)), size(want.size()), off(want.size());
  reference::Conv2dGradWeight(s, c.images, u.values.data(),
                              grad_y.Wide().data(), want.data());
  reference::Conv2dGradWeight(s, c.images, Magnitudes(u.values).data(),
                              Magnitudes(grad_y.Wide()).data(), size.data());
  reference::Conv2dGradWeight(s, c.images, u.bounds.data(),
                              Magnitudes(grad_y.Wide()).data(), off.data());
  const int64_t terms = c.images * s.out_height() * s.out_width() + 1;
  ForEachTarget([&] {
    std::vector<uint8_t> first;
    for (int threads : {1, 2, 3}) {
      SCOPED_TRACE(threads);
      const TestContext context(threads, Conv2dGradWeightWorkspace(s));
      StoredTensor got(form.w, WeightSize(c), 3);
      Conv2dGradWeight(s, c.images, InputOf(form, x, k), grad_y.tensor(),
                       {.to = got.tensor(), .accumulate = accumulate},
                       *context);
      for (size_t i = 0; i < want.size(); ++i) {
        const double b = accumulate ? before.Get(i) : 0.0;
        const double bound =
            SumErrorBound(terms, size[i] + std::abs(b)) + off[i];
        ASSERT_NEAR(got.Get(i), want[i] + b,
                    bound + got.RoundingBound(std::abs(want[i] + b) + bound))
            << "element " << i;
      }
      if (threads == 1) first = got.Bytes();
      ASSERT_EQ(got.Bytes(), first);
    }
  });
}

TEST(ConvFused, GradWeightMatchesReference) {
  for (const FusedCase& c : kFusedCases) {
    for (const FusedForm& form : kFusedForms) {
      SCOPED_TRACE(::testing::Message() << "case " << (&c - kFusedCases)
                                        << " form " << (&form - kFusedForms));
      CheckGradWeight(c, form, form.reduce);
      if (HasFatalFailure()) return;
    }
  }
}

// All layers of WRN-28-2, with everything fused, for 100 images.
TEST(ConvFused, WorkspaceOfAStepStaysBelowItsBound) {
  constexpr size_t kBound = 128 * 1024;
  for (const Conv2dShape& s : {Conv2dShape{3, 32, 32, 16, 3, 3, 1, 1},
                               {16, 32, 32, 32, 3, 3, 1, 1},
                               {32, 32, 32, 32, 3, 3, 1, 1},
                               {32, 32, 32, 64, 3, 3, 2, 1},
                               {64, 16, 16, 64, 3, 3, 1, 1},
                               {64, 16, 16, 128, 3, 3, 2, 1},
                               {128, 8, 8, 128, 3, 3, 1, 1}}) {
    EXPECT_LE(TotalBytes(Conv2dForwardWorkspace(s, {true, 100}), 1), kBound);
    EXPECT_LE(TotalBytes(Conv2dGradInputWorkspace(s, {true, 100}), 1), kBound);
    EXPECT_LE(TotalBytes(Conv2dGradWeightWorkspace(s), 1), kBound);
  }
}

}  // namespace
}  // namespace thimble::kernels
