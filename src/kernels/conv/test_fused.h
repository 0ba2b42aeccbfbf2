// SPDX-License-Identifier: Apache-2.0
//
// Test only: shapes, storage types and parts with which fused convolutions are
// tested, and what their prologue makes of the input.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/conv/conv.h"
#include "kernels/conv/reference.h"
#include "kernels/stored_tensor.h"
#include "kernels/testing.h"

namespace thimble::kernels::testing {

inline constexpr double kF32Epsilon = std::numeric_limits<float>::epsilon();

// Ways through the kernels: in pairs of images, of one and of two vectors a
// row, with both strides, and in general; odd numbers of images, of outputs and
// of channels; several chunks of sums.
struct FusedCase {
  Conv2dShape shape;
  int64_t images;
};
inline const FusedCase kFusedCases[] = {
    {{5, 8, 8, 6, 3, 3, 1, 1}, 3},     {{4, 16, 16, 9, 3, 3, 2, 1}, 3},
    {{3, 16, 16, 10, 3, 3, 1, 1}, 5},  {{3, 32, 32, 5, 3, 3, 1, 1}, 2},
    {{6, 32, 32, 8, 3, 3, 2, 1}, 2},   {{9, 8, 8, 12, 1, 1, 1, 0}, 3},
    {{9, 16, 16, 8, 1, 1, 2, 0}, 2},   {{3, 7, 9, 5, 3, 3, 1, 1}, 2},
    {{4, 9, 7, 3, 5, 5, 2, 2}, 2},     {{70, 8, 8, 17, 3, 3, 1, 1}, 17},
    {{16, 16, 32, 16, 3, 3, 1, 1}, 2}, {{24, 16, 16, 16, 3, 3, 1, 1}, 3},
    {{16, 8, 8, 24, 3, 3, 1, 1}, 18},
};

inline size_t InputSize(const FusedCase& c) {
  return static_cast<size_t>(c.images * c.shape.in_channels *
                             c.shape.in_height * c.shape.in_width);
}
inline size_t OutputSize(const FusedCase& c) {
  return static_cast<size_t>(c.images * c.shape.out_channels *
                             c.shape.out_height() * c.shape.out_width());
}
inline size_t WeightSize(const FusedCase& c) {
  return static_cast<size_t>(c.shape.out_channels * c.shape.in_channels *
                             c.shape.kernel_h * c.shape.kernel_w);
}

inline std::vector<double> Wide(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}
inline std::vector<double> Magnitudes(std::vector<double> values) {
  for (double& value : values) value = std::abs(value);
  return values;
}

// One combination of types and parts.
struct FusedForm {
  DType x = DType::kF32;
  DType w = DType::kF32;
  DType y = DType::kF32;
  bool prologue = false;
  bool relu = false;
  bool residual = false;
  bool reduce = false;
};
inline const FusedForm kFusedForms[] = {
    {DType::kF32, DType::kF32, DType::kF32, true, true, true, true},
    {DType::kF16, DType::kF16, DType::kF16, true, true, true, true},
    {DType::kBF16, DType::kBF16, DType::kBF16, true, true, true, true},
    {DType::kU8, DType::kF32, DType::kF16, true, false, false, true},
    {DType::kU8, DType::kBF16, DType::kF32, false, false, false, false},
    {DType::kF16, DType::kF32, DType::kBF16, false, false, true, false},
    {DType::kF32, DType::kF16, DType::kF32, true, false, false, false},
    {DType::kBF16, DType::kF32, DType::kF16, false, false, false, true},
};

// The prologue's coefficients, for bytes those that bring them to about [-1,
// 1].
struct Coefficients {
  std::vector<float> scale, shift;
  Coefficients(const FusedForm& form, int64_t channels)
      : scale(Randoms(channels, 21, 0.5f, 1.5f)),
        shift(Randoms(channels, 22, -0.5f, 0.5f)) {
    if (form.x != DType::kU8) return;
    for (float& s : scale) s /= 128.0f;
    for (float& s : shift) s -= 1.0f;
  }
};

// What the convolution reads, in double, and a bound for each value of what it
// may be off by in f32.
struct Activated {
  std::vector<double> values, bounds;
};
inline Activated Activate(const FusedCase& c, const FusedForm& form,
                          StoredTensor& x, const Coefficients& k) {
  const Conv2dShape& s = c.shape;
  const int64_t pixels = s.in_height * s.in_width;
  Activated result{x.Wide(), std::vector<double>(x.size())};
  if (!form.prologue) return result;
  for (size_t i = 0; i < x.size(); ++i) {
    const auto channel =
        static_cast<size_t>(static_cast<int64_t>(i) / pixels % s.in_channels);
    result.bounds[i] =
        kF32Epsilon * (std::abs(result.values[i] * k.scale[channel]) +
                       std::abs(k.shift[channel]));
  }
  std::vector<double> u(x.size());
  reference::Conv2dPrologue(c.images, s.in_channels, pixels,
                            result.values.data(), Wide(k.scale).data(),
                            Wide(k.shift).data(), form.relu, u.data());
  result.values = u;
  return result;
}

inline Conv2dInput InputOf(const FusedForm& form, StoredTensor& x,
                           const Coefficients& k) {
  Conv2dInput input{.x = x.tensor()};
  if (!form.prologue) return input;
  input.scale = k.scale.data();
  input.shift = k.shift.data();
  input.relu = form.relu;
  return input;
}

// Sums of up to kReductionPixels terms in f32, and their merging, relative to
// the mean magnitude.
inline constexpr double kReductionError = kF32Epsilon * (kReductionPixels + 8);

// Against what was stored.
inline void CheckStatistics(const FusedCase& c, StoredTensor& y,
                            const std::vector<float>& mean,
                            const std::vector<float>& variance) {
  const Conv2dShape& s = c.shape;
  const int64_t pixels = s.out_height() * s.out_width();
  std::vector<double> m(mean.size()), v(mean.size()), size(mean.size()),
      unused(mean.size());
  reference::Conv2dStatistics(c.images, s.out_channels, pixels, y.Wide().data(),
                              m.data(), v.data());
  reference::Conv2dStatistics(c.images, s.out_channels, pixels,
                              Magnitudes(y.Wide()).data(), size.data(),
                              unused.data());
  for (size_t o = 0; o < mean.size(); ++o) {
    const double bound = kReductionError * size[o];
    ASSERT_NEAR(mean[o], m[o], bound) << "mean of channel " << o;
    ASSERT_NEAR(
        variance[o], v[o],
        kReductionError * v[o] + 2 * bound * std::sqrt(v[o]) + bound * bound)
        << "variance of channel " << o;
  }
}

// Against the sums of what was stored; |x - mean| is at most 1.5.
inline void CheckNormSums(const FusedCase& c, StoredTensor& grad,
                          StoredTensor& x, const std::vector<float>& mean,
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

// Types of grad_y, w, grad_x and x, and whether there is an x.
struct FusedGradForm {
  DType grad_y, w, grad_x, x;
  bool norm;
};
inline const FusedGradForm kFusedGradForms[] = {
    {DType::kF32, DType::kF32, DType::kF32, DType::kF32, true},
    {DType::kF16, DType::kF16, DType::kF16, DType::kF16, true},
    {DType::kBF16, DType::kBF16, DType::kBF16, DType::kBF16, true},
    {DType::kF16, DType::kF32, DType::kBF16, DType::kF32, true},
    {DType::kF16, DType::kF16, DType::kF32, DType::kF32, false},
};
}  // namespace thimble::kernels::testing
