// SPDX-License-Identifier: Apache-2.0
//
// The definition of the convolution's gradients against derivatives of its
// forward pass.
#include <gtest/gtest.h>

#include <complex>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/conv/conv.h"
#include "kernels/conv/reference.h"
#include "kernels/conv/test_input.h"

namespace thimble::kernels {
namespace {

using testing::Input;
using testing::InputSize;
using testing::OutputSize;
using testing::WeightSize;

// The derivative of sum(grad_y * y) along one coordinate is the imaginary part
// of its value at a step of i*h, over h: no difference is taken, so it is exact
// to rounding for any small h.
TEST(Conv, ReferenceGradientsMatchComplexStep) {
  using Complex = std::complex<double>;
  constexpr double kStep = 1e-30;
  for (int64_t stride : {1, 2}) {
    const Conv2dShape s = {2, 4, 5, 3, 3, 2, stride, 1};
    const std::vector<double> x = Input(2 * InputSize(s), 0, 1).Wide();
    const std::vector<double> w = Input(WeightSize(s), 0, 2).Wide();
    const std::vector<double> grad_y = Input(2 * OutputSize(s), 0, 3).Wide();
    std::vector<double> grad_x(x.size()), grad_w(w.size());
    reference::Conv2dGradInput(s, 2, grad_y.data(), w.data(), grad_x.data());
    reference::Conv2dGradWeight(s, 2, x.data(), grad_y.data(), grad_w.data());
    std::vector<Complex> at_x(x.begin(), x.end()), at_w(w.begin(), w.end());
    const auto derivative = [&] {
      std::vector<Complex> y(grad_y.size());
      reference::Conv2dForward(s, 2, at_x.data(), at_w.data(), y.data());
      double sum = 0;
      for (size_t i = 0; i < y.size(); ++i) sum += grad_y[i] * y[i].imag();
      return sum / kStep;
    };
    const double bound = 200 * std::numeric_limits<double>::epsilon();
    for (size_t i = 0; i < x.size(); ++i) {
      at_x[i] += Complex(0, kStep);
      EXPECT_NEAR(grad_x[i], derivative(), bound);
      at_x[i] = x[i];
    }
    for (size_t i = 0; i < w.size(); ++i) {
      at_w[i] += Complex(0, kStep);
      EXPECT_NEAR(grad_w[i], derivative(), bound);
      at_w[i] = w[i];
    }
  }
}

// The same for y = conv(relu(x * scale + shift)): along the values before relu,
// which is what grad_beta sums up, along gamma through x̂ = (x - mean) *
// inv_std, and along the weights.
TEST(Conv, ReferenceFusedGradientsMatchComplexStep) {
  using Complex = std::complex<double>;
  constexpr double kStep = 1e-30;
  const Conv2dShape s = {2, 4, 6, 3, 3, 3, 2, 1};
  const int64_t pixels = s.in_height * s.in_width;
  const std::vector<double> x = Input(2 * InputSize(s), 0, 1).Wide();
  const std::vector<double> w = Input(WeightSize(s), 0, 2).Wide();
  const std::vector<double> grad_y = Input(2 * OutputSize(s), 0, 3).Wide();
  const std::vector<double> gamma = {1.25, -0.75}, beta = {0.125, 0.25};
  const std::vector<double> mean = {0.5, -0.25}, inv_std = {1.5, 0.75};
  std::vector<double> scale(2), shift(2);
  for (size_t c = 0; c < 2; ++c) {
    scale[c] = gamma[c] * inv_std[c];
    shift[c] = beta[c] - mean[c] * scale[c];
  }
  std::vector<double> u(x.size()), d(x.size()), grad_w(w.size());
  std::vector<double> grad_gamma(2), grad_beta(2);
  reference::Conv2dPrologue(2, 2, pixels, x.data(), scale.data(), shift.data(),
                            true, u.data());
  reference::Conv2dGradInput(s, 2, grad_y.data(), w.data(), d.data());
  reference::Conv2dMask(2, 2, pixels, x.data(), scale.data(), shift.data(),
                        d.data());
  reference::Conv2dNormSums(2, 2, pixels, d.data(), x.data(), mean.data(),
                            inv_std.data(), grad_gamma.data(),
                            grad_beta.data());
  reference::Conv2dGradWeight(s, 2, u.data(), grad_y.data(), grad_w.data());
  std::vector<Complex> at_gamma(gamma.begin(), gamma.end());
  std::vector<Complex> at_beta(beta.begin(), beta.end());
  std::vector<Complex> at_w(w.begin(), w.end()), step(x.size());
  const auto derivative = [&] {
    std::vector<Complex> v(x.size()), y(grad_y.size());
    for (size_t i = 0; i < x.size(); ++i) {
      const size_t c = i / static_cast<size_t>(pixels) % 2;
      const double normal = (x[i] - mean[c]) * inv_std[c];
      v[i] = reference::Relu(normal * at_gamma[c] + at_beta[c] + step[i]);
    }
    reference::Conv2dForward(s, 2, v.data(), at_w.data(), y.data());
    double sum = 0;
    for (size_t i = 0; i < y.size(); ++i) sum += grad_y[i] * y[i].imag();
    return sum / kStep;
  };
  const auto check = [&](std::vector<Complex>& at,
                         const std::vector<double>& want) {
    for (size_t i = 0; i < at.size(); ++i) {
      const Complex before = at[i];
      at[i] += Complex(0, kStep);
      EXPECT_NEAR(want[i], derivative(),
                  2000 * std::numeric_limits<double>::epsilon());
      at[i] = before;
    }
  };
  check(step, d);
  check(at_gamma, grad_gamma);
  check(at_beta, grad_beta);
  check(at_w, grad_w);
}

}  // namespace
}  // namespace thimble::kernels
