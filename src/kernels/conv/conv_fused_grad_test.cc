// SPDX-License-Identifier: Apache-2.0
//
// The input's gradient of the convolution in every storage type, with the norm
// before it: its sums in one pass, and the whole of it in two.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/conv/conv.h"
#include "kernels/conv/reference.h"
#include "kernels/conv/test_fused.h"
#include "kernels/conv/test_norm_grad.h"
#include "kernels/stored_tensor.h"
#include "kernels/testing.h"

namespace thimble::kernels {
namespace {

using testing::CheckNormSums;
using testing::ForEachTarget;
using testing::FusedCase;
using testing::FusedGradForm;
using testing::InputSize;
using testing::kFusedCases;
using testing::kFusedGradForms;
using testing::Magnitudes;
using testing::NormGradCase;
using testing::NormGradResult;
using testing::OutputSize;
using testing::Over;
using testing::Randoms;
using testing::StoredTensor;
using testing::SumErrorBound;
using testing::TestContext;
using testing::WeightSize;
using testing::Wide;

void CheckGradInput(const FusedCase& c, const FusedGradForm& form) {
  const Conv2dShape& s = c.shape;
  const int64_t pixels = s.in_height * s.in_width;
  StoredTensor grad_y(form.grad_y, OutputSize(c), 1);
  StoredTensor w(form.w, WeightSize(c), 2), x(form.x, InputSize(c), 3);
  const std::vector<float> scale = Randoms(s.in_channels, 4, 0.5f, 1.5f);
  const std::vector<float> shift = Randoms(s.in_channels, 5, -0.5f, 0.5f);
  const std::vector<float> mean = Randoms(s.in_channels, 6, -0.5f, 0.5f);
  const std::vector<float> inv_std = Randoms(s.in_channels, 7, 0.5f, 2.0f);
  std::vector<double> want(InputSize(c)), size(want.size());
  reference::Conv2dGradInput(s, c.images, grad_y.Wide().data(), w.Wide().data(),
                             want.data());
  reference::Conv2dGradInput(s, c.images, Magnitudes(grad_y.Wide()).data(),
                             Magnitudes(w.Wide()).data(), size.data());
  if (form.norm) {
    reference::Conv2dMask(c.images, s.in_channels, pixels, x.Wide().data(),
                          Wide(scale).data(), Wide(shift).data(), want.data());
  }
  const Conv2dReduction reduction{form.norm, c.images};
  ForEachTarget([&] {
    std::vector<uint8_t> first;
    std::vector<float> first_gamma, first_beta;
    for (int threads : {1, 2, 3}) {
      SCOPED_TRACE(threads);
      const TestContext context(threads,
                                Conv2dGradInputWorkspace(s, reduction));
      StoredTensor got(form.grad_x, InputSize(c));
      std::vector<float> gamma(static_cast<size_t>(s.in_channels));
      std::vector<float> beta(gamma.size());
      Conv2dGradInputTarget target{.to = got.tensor()};
      if (form.norm) {
        target.x = x.tensor();
        target.scale = scale.data();
        target.shift = shift.data();
        target.mean = mean.data();
        target.inv_std = inv_std.data();
        target.grad_gamma = gamma.data();
        target.grad_beta = beta.data();
      }
      Conv2dGradInput(s, c.images, grad_y.tensor(), w.tensor(), target,
                      *context);
      const int64_t terms = s.out_channels * s.kernel_h * s.kernel_w;
      for (size_t i = 0; i < want.size(); ++i) {
        const double bound = SumErrorBound(terms, size[i]);
        ASSERT_NEAR(got.Get(i), want[i],
                    bound + got.RoundingBound(std::abs(want[i]) + bound))
            << "element " << i;
      }
      if (form.norm) CheckNormSums(c, got, x, mean, inv_std, gamma, beta);
      if (threads == 1) {
        first = got.Bytes();
        first_gamma = gamma;
        first_beta = beta;
      }
      ASSERT_EQ(got.Bytes(), first);
      ASSERT_EQ(gamma, first_gamma);
      ASSERT_EQ(beta, first_beta);
    }
  });
}

TEST(ConvFused, GradInputMatchesReference) {
  for (const FusedCase& c : kFusedCases) {
    for (const FusedGradForm& form : kFusedGradForms) {
      SCOPED_TRACE(::testing::Message()
                   << "case " << (&c - kFusedCases) << " form "
                   << (&form - kFusedGradForms));
      CheckGradInput(c, form);
      if (HasFatalFailure()) return;
    }
  }
}

// Both parts of the one pass are compared with the scalar reference elsewhere.
TEST(ConvFused, TwoPassesGiveTheBitsOfOne) {
  for (const FusedCase& c : kFusedCases) {
    for (const FusedGradForm& form : kFusedGradForms) {
      if (!form.norm) continue;
      SCOPED_TRACE(::testing::Message()
                   << "case " << (&c - kFusedCases) << " form "
                   << (&form - kFusedGradForms));
      StoredTensor w(form.w, WeightSize(c), 2);
      NormGradCase test(c, form, w.tensor());
      ForEachTarget([&] {
        const NormGradResult alone = test.InOnePass(false);
        const NormGradResult sum = test.InOnePass(true);
        ASSERT_NE(alone.grad_x, sum.grad_x);
        ASSERT_EQ(test.InTwoPasses(false, Over::kNothing), alone);
        ASSERT_EQ(test.InTwoPasses(true, Over::kResidual), sum);
        if (form.x != form.grad_x) return;
        ASSERT_EQ(test.InTwoPasses(true, Over::kX), sum);
      });
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace thimble::kernels
