// SPDX-License-Identifier: Apache-2.0
//
// Direct convolutions in bf16 by dot products, to the bit: forward and gradient
// of the input, with every prologue and epilogue.
#include "kernels/dot/direct.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "kernels/conv/conv.h"
#include "kernels/conv/test_fused.h"
#include "kernels/dot/direct_reference.h"
#include "kernels/dot/test_cases.h"
#include "kernels/dot/test_form.h"
#include "kernels/norm/norm.h"
#include "kernels/stored_tensor.h"

namespace thimble::kernels {
namespace {

using testing::ExpectBytes;
using testing::ForEachDotForm;
using testing::FusedCase;
using testing::InputSize;
using testing::kDirectCases;
using testing::kLargeDirectCases;
using testing::OutputSize;
using testing::Randoms;
using testing::StoredTensor;
using testing::TestContext;
using testing::WeightSize;

constexpr DType kBF16 = DType::kBF16;

// Whether the scratch that is planned is enough for dot products.
bool IsTaken(const Conv2dShape& s) {
  dot::DirectPass forward, grad;
  return dot::MakeDirectPass(s, true, Conv2dForwardWorkspace(s).per_thread,
                             forward) &&
         dot::MakeDirectPass(s, false, Conv2dGradInputWorkspace(s).per_thread,
                             grad);
}

// f(case) for all, until one fails.
template <typename F>
void ForEachCase(std::span<const FusedCase> cases, const F& f) {
  for (const FusedCase& c : cases) {
    SCOPED_TRACE(::testing::Message() << "case " << (&c - cases.data()));
    ASSERT_TRUE(IsTaken(c.shape));
    f(c);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

// Values plus a residual, as they are stored.
std::vector<uint8_t> Stored(const std::vector<float>& values,
                            StoredTensor* residual) {
  StoredTensor result(kBF16, values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const auto more =
        residual == nullptr ? 0.0f : static_cast<float>(residual->Get(i));
    result.Set(i, residual == nullptr ? values[i] : values[i] + more);
  }
  return result.Bytes();
}

struct ForwardCall {
  explicit ForwardCall(const FusedCase& of)
      : c(of),
        x(kBF16, InputSize(c), 1),
        w(kBF16, WeightSize(c), 2),
        residual(kBF16, OutputSize(c), 3),
        scale(Randoms(c.shape.in_channels, 4, 0.5f, 1.5f)),
        shift(Randoms(c.shape.in_channels, 5, -0.5f, 0.5f)) {}

  Conv2dInput Input(bool prologue, bool relu) {
    if (!prologue) return {.x = x.tensor()};
    return {x.tensor(), scale.data(), shift.data(), relu};
  }
  std::vector<float> Sums(bool prologue, bool relu) {
    const Conv2dInput input = Input(prologue, relu);
    const std::vector<float> u = dot::DirectInput(
        c.shape, c.images, x.Floats(), input.scale, input.shift, relu);
    return dot::DirectForward(c.shape, c.images, u, w.Floats());
  }

  FusedCase c;
  StoredTensor x, w, residual;
  std::vector<float> scale, shift;
};

void CheckForward(const FusedCase& c) {
  ForwardCall call(c);
  for (const auto& [prologue, relu] :
       {std::pair{false, false}, {true, false}, {true, true}}) {
    const std::vector<float> sums = call.Sums(prologue, relu);
    const std::vector<uint8_t> plain = Stored(sums, nullptr);
    const std::vector<uint8_t> added = Stored(sums, &call.residual);
    ForEachDotForm([&] {
      for (const int threads : {1, 2, 3}) {
        const TestContext context(threads, Conv2dForwardWorkspace(c.shape));
        StoredTensor y(kBF16, OutputSize(c));
        Conv2dForward(c.shape, c.images, call.Input(prologue, relu),
                      call.w.tensor(), {.to = y.tensor()}, *context);
        ExpectBytes(y.Bytes(), plain);
        y.CopyFrom(call.residual);
        Conv2dForward(c.shape, c.images, call.Input(prologue, relu),
                      call.w.tensor(),
                      {.to = y.tensor(), .residual = y.tensor()}, *context);
        ExpectBytes(y.Bytes(), added);
      }
    });
  }
}

TEST(DirectDots, ForwardIsTheSumOfPairsToTheBit) {
  ForEachCase(kDirectCases, CheckForward);
}

// Mean and variance of what is stored: the same for all numbers of threads,
// and those of the values within the error of f32 sums.
void CheckMoments(const FusedCase& c) {
  ForwardCall call(c);
  const int64_t pixels = c.shape.out_height() * c.shape.out_width();
  const auto channels = static_cast<size_t>(c.shape.out_channels);
  ForEachDotForm([&] {
    std::vector<float> first;
    for (const int threads : {1, 2, 3}) {
      const TestContext context(
          threads, Conv2dForwardWorkspace(c.shape, {true, c.images}));
      StoredTensor y(kBF16, OutputSize(c));
      std::vector<float> moments(2 * channels);
      Conv2dForward(c.shape, c.images, call.Input(true, true), call.w.tensor(),
                    {.to = y.tensor(),
                     .residual = call.residual.tensor(),
                     .mean = moments.data(),
                     .variance = moments.data() + channels},
                    *context);
      if (threads == 1) {
        first = moments;
        ExpectBytes(y.Bytes(), Stored(call.Sums(true, true), &call.residual));
        std::vector<double> mean(channels), variance(channels);
        reference::Conv2dStatistics(c.images, c.shape.out_channels, pixels,
                                    y.Wide().data(), mean.data(),
                                    variance.data());
        for (size_t o = 0; o < channels; ++o) {
          const double size = std::sqrt(mean[o] * mean[o] + variance[o]);
          const double error = testing::kReductionError;
          EXPECT_NEAR(moments[o], mean[o], error * size);
          EXPECT_NEAR(moments[channels + o], variance[o],
                      2 * error * size * size);
        }
      }
      ASSERT_EQ(moments, first);
    }
  });
}

TEST(DirectDots, ForwardMomentsAreThoseOfWhatIsStored) {
  ForEachCase(kDirectCases, CheckMoments);
}

struct GradCall {
  explicit GradCall(const FusedCase& of)
      : c(of),
        grad_y(kBF16, OutputSize(c), 1),
        w(kBF16, WeightSize(c), 2),
        x(kBF16, InputSize(c), 3),
        residual(kBF16, InputSize(c), 9),
        scale(Randoms(c.shape.in_channels, 4, 0.5f, 1.5f)),
        shift(Randoms(c.shape.in_channels, 5, -0.5f, 0.5f)),
        mean(Randoms(c.shape.in_channels, 6, -0.5f, 0.5f)),
        inv_std(Randoms(c.shape.in_channels, 7, 0.5f, 2.0f)),
        gamma(Randoms(c.shape.in_channels, 8, 0.5f, 1.5f)),
        grad_gamma(gamma.size()),
        grad_beta(gamma.size()) {}

  std::vector<float> Sums() {
    return dot::DirectGradInput(c.shape, c.images, grad_y.Floats(), w.Floats());
  }
  // Zero where relu(x * scale + shift) is.
  std::vector<float> Masked(std::vector<float> grad) {
    const std::vector<double> at = x.Wide();
    reference::Conv2dMask(c.images, c.shape.in_channels, pixels(),
                          std::vector<float>(at.begin(), at.end()).data(),
                          scale.data(), shift.data(), grad.data());
    return grad;
  }
  int64_t pixels() const { return c.shape.in_height * c.shape.in_width; }

  Conv2dGradInputTarget Target(const Tensor& to) {
    return {to,          x.tensor(),     scale.data(),      shift.data(),
            mean.data(), inv_std.data(), grad_gamma.data(), grad_beta.data()};
  }
  BatchNormGradSums NormSums() const {
    return {.gamma = gamma.data(),
            .mean = mean.data(),
            .inv_std = inv_std.data(),
            .grad_gamma = grad_gamma.data(),
            .grad_beta = grad_beta.data()};
  }

  FusedCase c;
  StoredTensor grad_y, w, x, residual;
  std::vector<float> scale, shift, mean, inv_std, gamma, grad_gamma, grad_beta;
};

void CheckGradInput(const FusedCase& c) {
  GradCall call(c);
  const std::vector<float> sums = call.Sums();
  const std::vector<uint8_t> plain = Stored(sums, nullptr);
  const std::vector<uint8_t> masked = Stored(call.Masked(sums), nullptr);
  ForEachDotForm([&] {
    std::vector<float> gamma, beta;
    for (const int threads : {1, 2, 3}) {
      StoredTensor got(kBF16, InputSize(c));
      const TestContext context(threads, Conv2dGradInputWorkspace(c.shape));
      Conv2dGradInput(c.shape, c.images, call.grad_y.tensor(), call.w.tensor(),
                      {.to = got.tensor()}, *context);
      ExpectBytes(got.Bytes(), plain);
      const TestContext reducing(
          threads, Conv2dGradInputWorkspace(c.shape, {true, c.images}));
      Conv2dGradInput(c.shape, c.images, call.grad_y.tensor(), call.w.tensor(),
                      call.Target(got.tensor()), *reducing);
      ExpectBytes(got.Bytes(), masked);
      if (threads == 1) {
        gamma = call.grad_gamma;
        beta = call.grad_beta;
      }
      ASSERT_EQ(call.grad_gamma, gamma);
      ASSERT_EQ(call.grad_beta, beta);
    }
  });
}

TEST(DirectDots, GradientOfTheInputIsTheSumOfPairsToTheBit) {
  ForEachCase(kDirectCases, CheckGradInput);
}

// The sums without a stored gradient, and the second pass with them: what batch
// norm makes of the stored one.
void CheckNormGrad(const FusedCase& c) {
  GradCall call(c);
  const std::vector<uint8_t> masked = Stored(call.Masked(call.Sums()), nullptr);
  ForEachDotForm([&] {
    const TestContext reducing(
        2, Conv2dGradInputWorkspace(c.shape, {true, c.images}));
    const TestContext context(3, Conv2dGradInputWorkspace(c.shape));
    Conv2dGradInput(c.shape, c.images, call.grad_y.tensor(), call.w.tensor(),
                    call.Target({nullptr, kBF16}), *reducing);
    StoredTensor want(kBF16, InputSize(c)), got(kBF16, InputSize(c));
    std::memcpy(want.data(), masked.data(), masked.size());
    BatchNormGradRest(
        {.channels = c.shape.in_channels, .pixels = call.pixels()}, c.images,
        want.tensor(), call.x.tensor(), call.NormSums(), call.residual.tensor(),
        want.tensor(), *context);
    Conv2dNormGrad(c.shape, c.images, call.grad_y.tensor(), call.w.tensor(),
                   {.to = got.tensor(),
                    .x = call.x.tensor(),
                    .scale = call.scale.data(),
                    .shift = call.shift.data(),
                    .sums = call.NormSums(),
                    .residual = call.residual.tensor()},
                   *context);
    ExpectBytes(got.Bytes(), want.Bytes());
    // The sums themselves, from what would have been stored.
    const std::vector<double> xs = call.x.Wide();
    std::memcpy(want.data(), masked.data(), masked.size());
    for (size_t i = 0; i < call.grad_beta.size(); ++i) {
      double sum = 0.0, size = 0.0;
      for (size_t j = 0; j < want.size(); ++j) {
        const auto plane = static_cast<int64_t>(j) / call.pixels();
        if (plane % c.shape.in_channels != static_cast<int64_t>(i)) continue;
        sum += want.Get(j);
        size += std::abs(want.Get(j));
      }
      EXPECT_NEAR(call.grad_beta[i], sum, testing::kReductionError * size);
    }
  });
}

TEST(DirectDots, GradientThroughTheNormIsThatOfWhatIsStored) {
  ForEachCase(kDirectCases, CheckNormGrad);
}

TEST(DirectDots, LargeShapesAreTheSumOfPairsToTheBit) {
  ForEachCase(kLargeDirectCases, CheckForward);
  ForEachCase(kLargeDirectCases, CheckMoments);
  ForEachCase(kLargeDirectCases, CheckGradInput);
  ForEachCase(kLargeDirectCases, CheckNormGrad);
}

// With a prologue, whose results dot products round.
std::vector<uint8_t> ForwardBytes(const Conv2dShape& s, StoredTensor& x,
                                  StoredTensor& w, DType to) {
  const std::vector<float> scale = Randoms(s.in_channels, 4, 0.5f, 1.5f);
  const std::vector<float> shift = Randoms(s.in_channels, 5, -0.5f, 0.5f);
  const TestContext context(2, Conv2dForwardWorkspace(s));
  StoredTensor y(to, OutputSize({s, 1}));
  Conv2dForward(s, 1, {x.tensor(), scale.data(), shift.data(), true},
                w.tensor(), {.to = y.tensor()}, *context);
  return y.Bytes();
}

// Another type of any tensor, or another stride: with dot products on, the bits
// are those without.
TEST(DirectDots, OtherTypesAndStridesRunAsWithoutDotProducts) {
  const DType f32 = DType::kF32, f16 = DType::kF16, u8 = DType::kU8;
  const struct {
    int64_t stride;
    DType x, w, y;
    bool dots;
  } kCalls[] = {{1, kBF16, kBF16, kBF16, true},  {2, kBF16, kBF16, kBF16, true},
                {3, kBF16, kBF16, kBF16, false}, {2, u8, kBF16, kBF16, false},
                {2, f16, f16, f16, false},       {2, kBF16, f32, kBF16, false},
                {2, kBF16, kBF16, f32, false},   {1, f32, kBF16, kBF16, false}};
  for (const auto& call : kCalls) {
    SCOPED_TRACE(&call - kCalls);
    const Conv2dShape s = {30, 11, 11, 12, 3, 3, call.stride, 1};
    StoredTensor x(call.x, InputSize({s, 1}), 1);
    StoredTensor w(call.w, WeightSize({s, 1}), 2);
    ForEachDotForm([&] {
      const DotForm form = ActiveDotForm();
      const std::vector<uint8_t> with = ForwardBytes(s, x, w, call.y);
      ForceDotForm(DotForm::kNone);
      const std::vector<uint8_t> without = ForwardBytes(s, x, w, call.y);
      ForceDotForm(form);
      EXPECT_EQ(with != without, call.dots);
    });
  }
}

// Every shape that any model here has is taken within today's scratch.
TEST(DirectDots, TilesFitIntoTheScratchOfOtherWays) {
  for (const Conv2dShape& s : testing::kModelShapes) {
    EXPECT_TRUE(IsTaken(s)) << "shape " << (&s - testing::kModelShapes);
  }
}

}  // namespace
}  // namespace thimble::kernels
