// SPDX-License-Identifier: Apache-2.0
//
// The input's gradient of the convolution in every storage type, with the norm
// before it: its sums in one pass, and the whole of it in two.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/conv/conv.h"
#include "kernels/conv/reference.h"
#include "kernels/conv/test_fused.h"
#include "kernels/stored_tensor.h"
#include "kernels/testing.h"

namespace thimble::kernels {
namespace {

using testing::ForEachTarget;
using testing::FusedCase;
using testing::FusedGradForm;
using testing::InputSize;
using testing::kFusedCases;
using testing::kFusedGradForms;
using testing::kReductionError;
using testing::Magnitudes;
using testing::OutputSize;
using testing::Randoms;
using testing::StoredTensor;
using testing::SumErrorBound;
using testing::TestContext;
using testing::WeightSize;
using testing::Wide;

// Against the sums of what was stored; |x - mean| is at most 1.5.
void CheckNormSums(const FusedCase& c, StoredTensor& grad, StoredTensor& x,
                   const std::vector<float>& mean,
                   const std::vector<float>& inv_std,
                   const std::vector<float>& gamma,
                   const std::vector<float>& beta) {
  const int64_t channels = c.shape.in_channels;
  const int64_t pixels = c.shape.in_height * c.shape.in_width;
  std::vector<double> sum_gamma(gamma.size()), sum_beta(gamma.size());
  std::vector<double> size_gamma(gamma.size()), size_beta(gamma.size());
  reference::Conv2dNormSums(c.images, channels, pixels, grad.Wide().data(),
                            x.Wide().data(), Wide(mean).data(),
                            Wide(inv_std).data(), sum_gamma.data(),
                            sum_beta.data());
  const std::vector<double> zeros(gamma.size()), far(InputSize(c), 1.5);
  reference::Conv2dNormSums(
      c.images, channels, pixels, Magnitudes(grad.Wide()).data(), far.data(),
      zeros.data(), Wide(inv_std).data(), size_gamma.data(), size_beta.data());
  for (size_t i = 0; i < gamma.size(); ++i) {
    ASSERT_NEAR(gamma[i], sum_gamma[i], kReductionError * size_gamma[i]);
    ASSERT_NEAR(beta[i], sum_beta[i], kReductionError * size_beta[i]);
  }
}

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

// Where the second pass writes.
enum class Over { kNothing, kX, kResidual };

// The input's gradient through the norm, in one pass or in two.
struct NormGradResult {
  std::vector<uint8_t> grad_x;
  std::vector<float> gamma, beta;
  bool operator==(const NormGradResult&) const = default;
};

class NormGradCase {
 public:
  NormGradCase(const FusedCase& c, const FusedGradForm& form)
      : c_(c),
        form_(form),
        grad_y_(form.grad_y, OutputSize(c), 1),
        w_(form.w, WeightSize(c), 2),
        x_(form.x, InputSize(c), 3),
        residual_(form.grad_x, InputSize(c), 9),
        x_bytes_(x_.Bytes()),
        residual_bytes_(residual_.Bytes()),
        scale_(Randoms(c.shape.in_channels, 4, 0.5f, 1.5f)),
        shift_(Randoms(c.shape.in_channels, 5, -0.5f, 0.5f)),
        mean_(Randoms(c.shape.in_channels, 6, -0.5f, 0.5f)),
        inv_std_(Randoms(c.shape.in_channels, 7, 0.5f, 2.0f)),
        gamma_(Randoms(c.shape.in_channels, 8, 0.5f, 1.5f)) {}

  NormGradResult InOnePass(bool with_residual) {
    const Conv2dShape& s = c_.shape;
    const TestContext context(1,
                              Conv2dGradInputWorkspace(s, {true, c_.images}));
    Restore();
    StoredTensor grad(form_.grad_x, InputSize(c_));
    NormGradResult result = Sums(grad.tensor(), *context);
    BatchNormGradRest(
        {.channels = s.in_channels, .pixels = s.in_height * s.in_width},
        c_.images, grad.tensor(), x_.tensor(), SumsOf(result),
        with_residual ? residual_.tensor() : Tensor::None(), grad.tensor(),
        *context);
    result.grad_x = grad.Bytes();
    return result;
  }

  NormGradResult InTwoPasses(bool with_residual, Over over) {
    const Conv2dShape& s = c_.shape;
    const TestContext first(3, Conv2dGradInputWorkspace(s, {true, c_.images}));
    const TestContext second(3, Conv2dGradInputWorkspace(s));
    Restore();
    StoredTensor apart(form_.grad_x, InputSize(c_));
    NormGradResult result = Sums({nullptr, form_.grad_x}, *first);
    StoredTensor& to = over == Over::kX          ? x_
                       : over == Over::kResidual ? residual_
                                                 : apart;
    Conv2dNormGrad(
        s, c_.images, grad_y_.tensor(), w_.tensor(),
        {.to = to.tensor(),
         .x = x_.tensor(),
         .scale = scale_.data(),
         .shift = shift_.data(),
         .sums = SumsOf(result),
         .residual = with_residual ? residual_.tensor() : Tensor::None()},
        *second);
    result.grad_x = to.Bytes();
    return result;
  }

 private:
  // What a run may have written over.
  void Restore() {
    std::memcpy(x_.data(), x_bytes_.data(), x_bytes_.size());
    std::memcpy(residual_.data(), residual_bytes_.data(),
                residual_bytes_.size());
  }

  NormGradResult Sums(const Tensor& to, const KernelContext& context) {
    NormGradResult result{{}, mean_, mean_};
    Conv2dGradInput(c_.shape, c_.images, grad_y_.tensor(), w_.tensor(),
                    {.to = to,
                     .x = x_.tensor(),
                     .scale = scale_.data(),
                     .shift = shift_.data(),
                     .mean = mean_.data(),
                     .inv_std = inv_std_.data(),
                     .grad_gamma = result.gamma.data(),
                     .grad_beta = result.beta.data()},
                    context);
    return result;
  }

  BatchNormGradSums SumsOf(const NormGradResult& result) const {
    return {.gamma = gamma_.data(),
            .mean = mean_.data(),
            .inv_std = inv_std_.data(),
            .grad_gamma = result.gamma.data(),
            .grad_beta = result.beta.data()};
  }

  const FusedCase& c_;
  const FusedGradForm& form_;
  StoredTensor grad_y_, w_, x_, residual_;
  std::vector<uint8_t> x_bytes_, residual_bytes_;
  std::vector<float> scale_, shift_, mean_, inv_std_, gamma_;
};

// Both parts of the one pass are compared with the scalar reference elsewhere.
TEST(ConvFused, TwoPassesGiveTheBitsOfOne) {
  for (const FusedCase& c : kFusedCases) {
    for (const FusedGradForm& form : kFusedGradForms) {
      if (!form.norm) continue;
      SCOPED_TRACE(::testing::Message()
                   << "case " << (&c - kFusedCases) << " form "
                   << (&form - kFusedGradForms));
      NormGradCase test(c, form);
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
