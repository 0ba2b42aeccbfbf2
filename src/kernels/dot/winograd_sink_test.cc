// SPDX-License-Identifier: Apache-2.0
//
// What becomes of the sums of Winograd's convolution with dot products:
// residual and moments forward, mask, sums and norm backward.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/conv/test_fused.h"
#include "kernels/dot/dot_form.h"
#include "kernels/dot/test_form.h"
#include "kernels/dot/test_winograd.h"
#include "kernels/dot/winograd_model.h"
#include "kernels/norm/norm.h"
#include "kernels/stored_tensor.h"
#include "kernels/testing.h"

namespace thimble::kernels {
namespace {

using testing::kReductionError;
using testing::Randoms;
using testing::StoredTensor;
using testing::TestContext;
using testing::ThreeByThree;
using testing::WinogradCase;
using testing::WinogradOperands;

// Chunks of sums of one image and of 16, whole and begun.
const WinogradCase kSinkCases[] = {{ThreeByThree(16, 32, 32, 16), 1},
                                   {ThreeByThree(32, 16, 16, 48), 10},
                                   {ThreeByThree(16, 8, 8, 32), 2},
                                   {ThreeByThree(64, 8, 8, 64), 18}};

size_t ChannelOf(size_t i, int64_t channels, int64_t pixels) {
  return static_cast<size_t>(static_cast<int64_t>(i) / pixels % channels);
}

void ExpectMoments(StoredTensor& y, int64_t channels, int64_t pixels,
                   const std::vector<float>& mean,
                   const std::vector<float>& variance) {
  std::vector<double> sum(mean.size()), size(mean.size()), m2(mean.size());
  const double count =
      static_cast<double>(y.size()) / static_cast<double>(channels);
  for (size_t i = 0; i < y.size(); ++i) {
    sum[ChannelOf(i, channels, pixels)] += y.Get(i);
    size[ChannelOf(i, channels, pixels)] += std::abs(y.Get(i));
  }
  for (size_t i = 0; i < y.size(); ++i) {
    const size_t c = ChannelOf(i, channels, pixels);
    const double off = y.Get(i) - sum[c] / count;
    m2[c] += off * off;
  }
  for (size_t c = 0; c < mean.size(); ++c) {
    EXPECT_NEAR(mean[c], sum[c] / count, kReductionError * size[c] / count);
    EXPECT_NEAR(variance[c], m2[c] / count, kReductionError * m2[c] / count);
  }
}

TEST(DotWinogradSink, AddsTheResidualAndFindsTheMoments) {
  for (const WinogradCase& c : kSinkCases) {
    WinogradOperands o(c);
    const Conv2dShape& s = c.shape;
    std::vector<float> want = dot::ModelSums(testing::PassOf(s, true), c.images,
                                             o.Input(2), o.w.tensor());
    for (size_t i = 0; i < want.size(); ++i) {
      want[i] += static_cast<float>(o.y.Get(i));
    }
    testing::ForEachDotForm([&] {
      std::vector<float> first_mean, first_variance;
      for (const int threads : {1, 2, 3}) {
        const TestContext context(threads,
                                  Conv2dForwardWorkspace(s, {true, c.images}));
        StoredTensor y(DType::kBF16, o.y.size());
        y.CopyFrom(o.y);
        std::vector<float> mean(static_cast<size_t>(s.out_channels));
        std::vector<float> variance(mean.size());
        // Once in place, once from elsewhere.
        Conv2dForward(s, c.images, o.Input(2), o.w.tensor(),
                      {.to = y.tensor(),
                       .residual = threads == 1 ? o.y.tensor() : y.tensor(),
                       .mean = mean.data(),
                       .variance = variance.data()},
                      *context);
        testing::ExpectBits(y, want, "with the residual");
        ExpectMoments(y, s.out_channels, s.in_height * s.in_width, mean,
                      variance);
        if (threads == 1) {
          first_mean = mean;
          first_variance = variance;
        }
        ASSERT_EQ(mean, first_mean);
        ASSERT_EQ(variance, first_variance);
      }
    });
  }
}

// The gradient of relu(x * scale + shift) and of the norm that these are.
struct NormCase {
  explicit NormCase(const WinogradCase& the_case)
      : c(the_case),
        o(the_case),
        channels(the_case.shape.in_channels),
        pixels(the_case.shape.in_height * the_case.shape.in_width),
        mean(Randoms(channels, 6, -0.5f, 0.5f)),
        inv_std(Randoms(channels, 7, 0.5f, 2.0f)),
        gamma(Randoms(channels, 8, 0.5f, 1.5f)),
        grad_gamma(mean.size()),
        grad_beta(mean.size()) {}

  void Sum(const Tensor& to, const KernelContext& context) {
    Conv2dGradInput(c.shape, c.images, o.y.tensor(), o.w.tensor(),
                    {.to = to,
                     .x = o.x.tensor(),
                     .scale = o.scale.data(),
                     .shift = o.shift.data(),
                     .mean = mean.data(),
                     .inv_std = inv_std.data(),
                     .grad_gamma = grad_gamma.data(),
                     .grad_beta = grad_beta.data()},
                    context);
  }
  BatchNormGradSums Sums() const {
    return {.gamma = gamma.data(),
            .mean = mean.data(),
            .inv_std = inv_std.data(),
            .grad_gamma = grad_gamma.data(),
            .grad_beta = grad_beta.data()};
  }
  void ExpectSums(StoredTensor& grad) {
    std::vector<double> beta(mean.size()), beta_size(mean.size());
    std::vector<double> gamma_sum(mean.size()), gamma_size(mean.size());
    for (size_t i = 0; i < grad.size(); ++i) {
      const size_t k = ChannelOf(i, channels, pixels);
      const double g = grad.Get(i);
      const double normal =
          (o.x.Get(i) - static_cast<double>(mean[k])) * inv_std[k];
      beta[k] += g;
      beta_size[k] += std::abs(g);
      gamma_sum[k] += g * normal;
      gamma_size[k] += std::abs(g * normal);
    }
    for (size_t k = 0; k < mean.size(); ++k) {
      EXPECT_NEAR(grad_beta[k], beta[k], kReductionError * beta_size[k]);
      EXPECT_NEAR(grad_gamma[k], gamma_sum[k], kReductionError * gamma_size[k]);
    }
  }

  const WinogradCase& c;
  WinogradOperands o;
  int64_t channels, pixels;
  std::vector<float> mean, inv_std, gamma, grad_gamma, grad_beta;
};

TEST(DotWinogradSink, MasksTheGradientAndSumsItUp) {
  for (const WinogradCase& c : kSinkCases) {
    NormCase n(c);
    const Conv2dShape& s = c.shape;
    std::vector<float> want =
        dot::ModelSums(testing::PassOf(s, false), c.images,
                       {.x = n.o.y.tensor()}, n.o.w.tensor());
    for (size_t i = 0; i < want.size(); ++i) {
      const size_t k = ChannelOf(i, n.channels, n.pixels);
      const float u = std::fma(static_cast<float>(n.o.x.Get(i)), n.o.scale[k],
                               n.o.shift[k]);
      if (!(u > 0.0f)) want[i] = 0.0f;
    }
    testing::ForEachDotForm([&] {
      std::vector<float> gamma, beta;
      for (const int threads : {1, 2, 3}) {
        const TestContext context(
            threads, Conv2dGradInputWorkspace(s, {true, c.images}));
        StoredTensor grad(DType::kBF16, n.o.x.size());
        n.Sum(grad.tensor(), *context);
        testing::ExpectBits(grad, want, "masked");
        n.ExpectSums(grad);
        if (threads == 1) {
          gamma = n.grad_gamma;
          beta = n.grad_beta;
        }
        ASSERT_EQ(n.grad_gamma, gamma);
        ASSERT_EQ(n.grad_beta, beta);
      }
    });
  }
}

TEST(DotWinogradSink, GoesThroughTheNormAsIfStoredInBetween) {
  for (const WinogradCase& c : kSinkCases) {
    NormCase n(c);
    const Conv2dShape& s = c.shape;
    StoredTensor residual(DType::kBF16, n.o.x.size(), 9);
    testing::ForEachDotForm([&] {
      const TestContext sums(2, Conv2dGradInputWorkspace(s, {true, c.images}));
      StoredTensor want(DType::kBF16, n.o.x.size());
      n.Sum(want.tensor(), *sums);
      const std::vector<float> gamma = n.grad_gamma, beta = n.grad_beta;
      BatchNormGradRest({.channels = n.channels, .pixels = n.pixels}, c.images,
                        want.tensor(), n.o.x.tensor(), n.Sums(),
                        residual.tensor(), want.tensor(), *sums);
      n.Sum({nullptr, DType::kBF16}, *sums);  // the sums alone
      ASSERT_EQ(n.grad_gamma, gamma);
      ASSERT_EQ(n.grad_beta, beta);
      for (const int threads : {1, 2, 3}) {
        const TestContext context(threads, Conv2dGradInputWorkspace(s));
        StoredTensor grad(DType::kBF16, n.o.x.size());
        grad.CopyFrom(residual);
        Conv2dNormGrad(s, c.images, n.o.y.tensor(), n.o.w.tensor(),
                       {.to = grad.tensor(),
                        .x = n.o.x.tensor(),
                        .scale = n.o.scale.data(),
                        .shift = n.o.shift.data(),
                        .sums = n.Sums(),
                        .residual = grad.tensor()},
                       *context);
        ASSERT_EQ(grad.Bytes(), want.Bytes()) << threads << " threads";
      }
    });
  }
}

}  // namespace
}  // namespace thimble::kernels
