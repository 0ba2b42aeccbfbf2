// SPDX-License-Identifier: Apache-2.0
//
// The convolution in every storage type, with its prologue and epilogues.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/conv/conv.h"
#include "kernels/conv/reference.h"
#include "kernels/stored_tensor.h"
#include "kernels/testing.h"

namespace thimble::kernels {
namespace {

using testing::ForEachTarget;
using testing::Randoms;
using testing::StoredTensor;
using testing::SumErrorBound;
using testing::TestContext;
using testing::TestValue;

constexpr double kEpsilon = std::numeric_limits<float>::epsilon();

// Ways through the kernels: in pairs of images, of one and of two vectors a
// row, with both strides, and in general; odd numbers of images, of outputs and
// of channels; several chunks of sums.
struct Case {
  Conv2dShape shape;
  int64_t images;
};
const Case kCases[] = {
    {{5, 8, 8, 6, 3, 3, 1, 1}, 3},     {{4, 16, 16, 9, 3, 3, 2, 1}, 3},
    {{3, 16, 16, 10, 3, 3, 1, 1}, 5},  {{3, 32, 32, 5, 3, 3, 1, 1}, 2},
    {{6, 32, 32, 8, 3, 3, 2, 1}, 2},   {{9, 8, 8, 12, 1, 1, 1, 0}, 3},
    {{9, 16, 16, 8, 1, 1, 2, 0}, 2},   {{3, 7, 9, 5, 3, 3, 1, 1}, 2},
    {{4, 9, 7, 3, 5, 5, 2, 2}, 2},     {{70, 8, 8, 17, 3, 3, 1, 1}, 17},
    {{16, 16, 32, 16, 3, 3, 1, 1}, 2}, {{24, 16, 16, 16, 3, 3, 1, 1}, 3},
    {{16, 8, 8, 24, 3, 3, 1, 1}, 18},
};

size_t InputSize(const Case& c) {
  return static_cast<size_t>(c.images * c.shape.in_channels *
                             c.shape.in_height * c.shape.in_width);
}
size_t OutputSize(const Case& c) {
  return static_cast<size_t>(c.images * c.shape.out_channels *
                             c.shape.out_height() * c.shape.out_width());
}
size_t WeightSize(const Case& c) {
  return static_cast<size_t>(c.shape.out_channels * c.shape.in_channels *
                             c.shape.kernel_h * c.shape.kernel_w);
}

std::vector<double> Wide(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}
std::vector<double> Magnitudes(std::vector<double> values) {
  for (double& value : values) value = std::abs(value);
  return values;
}

// One combination of types and parts.
struct Form {
  DType x = DType::kF32;
  DType w = DType::kF32;
  DType y = DType::kF32;
  bool prologue = false;
  bool relu = false;
  bool residual = false;
  bool reduce = false;
};
const Form kForms[] = {
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
  Coefficients(const Form& form, int64_t channels)
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
Activated Activate(const Case& c, const Form& form, StoredTensor& x,
                   const Coefficients& k) {
  const Conv2dShape& s = c.shape;
  const int64_t pixels = s.in_height * s.in_width;
  Activated result{x.Wide(), std::vector<double>(x.size())};
  if (!form.prologue) return result;
  for (size_t i = 0; i < x.size(); ++i) {
    const auto channel =
        static_cast<size_t>(static_cast<int64_t>(i) / pixels % s.in_channels);
    result.bounds[i] =
        kEpsilon * (std::abs(result.values[i] * k.scale[channel]) +
                    std::abs(k.shift[channel]));
  }
  std::vector<double> u(x.size());
  reference::Conv2dPrologue(c.images, s.in_channels, pixels,
                            result.values.data(), Wide(k.scale).data(),
                            Wide(k.shift).data(), form.relu, u.data());
  result.values = u;
  return result;
}

Conv2dInput InputOf(const Form& form, StoredTensor& x, const Coefficients& k) {
  Conv2dInput input{.x = x.tensor()};
  if (!form.prologue) return input;
  input.scale = k.scale.data();
  input.shift = k.shift.data();
  input.relu = form.relu;
  return input;
}

// Sums of up to kReductionPixels terms in f32, and their merging, relative to
// the mean magnitude.
constexpr double kReductionError = kEpsilon * (kReductionPixels + 8);

void CheckStatistics(const Case& c, StoredTensor& y,
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

void CheckForward(const Case& c, const Form& form) {
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
  for (const Case& c : kCases) {
    for (const Form& form : kForms) {
      SCOPED_TRACE(::testing::Message()
                   << "case " << (&c - kCases) << " form " << (&form - kForms));
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

// Types of grad_y, w, grad_x and x, and whether there is an x.
struct GradForm {
  DType grad_y, w, grad_x, x;
  bool norm;
};
const GradForm kGradForms[] = {
    {DType::kF32, DType::kF32, DType::kF32, DType::kF32, true},
    {DType::kF16, DType::kF16, DType::kF16, DType::kF16, true},
    {DType::kBF16, DType::kBF16, DType::kBF16, DType::kBF16, true},
    {DType::kF16, DType::kF32, DType::kBF16, DType::kF32, true},
    {DType::kF16, DType::kF16, DType::kF32, DType::kF32, false},
};

// Against the sums of what was stored; |x - mean| is at most 1.5.
void CheckNormSums(const Case& c, StoredTensor& grad, StoredTensor& x,
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

void CheckGradInput(const Case& c, const GradForm& form) {
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
  for (const Case& c : kCases) {
    for (const GradForm& form : kGradForms) {
      SCOPED_TRACE(::testing::Message() << "case " << (&c - kCases) << " form "
                                        << (&form - kGradForms));
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
  NormGradCase(const Case& c, const GradForm& form)
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

  const Case& c_;
  const GradForm& form_;
  StoredTensor grad_y_, w_, x_, residual_;
  std::vector<uint8_t> x_bytes_, residual_bytes_;
  std::vector<float> scale_, shift_, mean_, inv_std_, gamma_;
};

// Both parts of the one pass are compared with the scalar reference elsewhere.
TEST(ConvFused, TwoPassesGiveTheBitsOfOne) {
  for (const Case& c : kCases) {
    for (const GradForm& form : kGradForms) {
      if (!form.norm) continue;
      SCOPED_TRACE(::testing::Message() << "case " << (&c - kCases) << " form "
                                        << (&form - kGradForms));
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

void CheckGradWeight(const Case& c, const Form& form, bool accumulate) {
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
  for (const Case& c : kCases) {
    for (const Form& form : kForms) {
      SCOPED_TRACE(::testing::Message()
                   << "case " << (&c - kCases) << " form " << (&form - kForms));
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
