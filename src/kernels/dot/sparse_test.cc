// SPDX-License-Identifier: Apache-2.0
//
// Sparse convolutions in bf16 by dot products, to the bit: forward and gradient
// of the input, with every prologue and epilogue.
#include "kernels/dot/sparse.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "kernels/conv/conv.h"
#include "kernels/conv/test_fused.h"
#include "kernels/dot/sparse_reference.h"
#include "kernels/dot/test_cases.h"
#include "kernels/dot/test_form.h"
#include "kernels/dot/test_sparse.h"
#include "kernels/norm/norm.h"
#include "kernels/stored_tensor.h"

namespace thimble::kernels {
namespace {

using testing::ExpectBytes;
using testing::ForEachDotForm;
using testing::FusedCase;
using testing::InBlocks;
using testing::InputSize;
using testing::kLargeSparseCases;
using testing::kSparseCases;
using testing::OutputSize;
using testing::Randoms;
using testing::SparseCase;
using testing::SparseWeightsOf;
using testing::StoredTensor;
using testing::TestContext;
using testing::WeightSize;

constexpr DType kBF16 = DType::kBF16;

dot::SparsePass PassOf(const Conv2dShape& s, bool forward) {
  dot::SparsePass pass;
  EXPECT_TRUE(dot::MakeSparsePass(s, forward, pass));
  EXPECT_LE(pass.Bytes(), dot::SparseRoom(s));
  return pass;
}

// f(case) for all, until one fails.
template <typename F>
void ForEachCase(std::span<const SparseCase> cases, const F& f) {
  for (const SparseCase& c : cases) {
    SCOPED_TRACE(::testing::Message() << "case " << (&c - cases.data()));
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
  explicit ForwardCall(const SparseCase& of)
      : c(InBlocks(of)),
        w(of),
        x(kBF16, InputSize(c), 1),
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
    return dot::SparseForward(c.shape, c.images, u, w.Dense(WeightSize(c)),
                              PassOf(c.shape, true).chunk);
  }

  FusedCase c;
  SparseWeightsOf w;
  StoredTensor x, residual;
  std::vector<float> scale, shift;
};

void CheckForward(const SparseCase& of) {
  ForwardCall call(of);
  const FusedCase& c = call.c;
  const struct {
    bool prologue, relu;
  } forms[] = {{false, false}, {true, false}, {true, true}};
  for (const auto& form : forms) {
    const std::vector<float> sums = call.Sums(form.prologue, form.relu);
    const std::vector<uint8_t> plain = Stored(sums, nullptr);
    const std::vector<uint8_t> added = Stored(sums, &call.residual);
    ForEachDotForm([&] {
      for (const int threads : {1, 2, 3}) {
        const TestContext context(threads, Conv2dForwardWorkspace(c.shape));
        StoredTensor y(kBF16, OutputSize(c));
        Conv2dForward(c.shape, c.images, call.Input(form.prologue, form.relu),
                      call.w.tensor(), {.to = y.tensor()}, *context);
        ExpectBytes(y.Bytes(), plain);
        y.CopyFrom(call.residual);
        Conv2dForward(c.shape, c.images, call.Input(form.prologue, form.relu),
                      call.w.tensor(),
                      {.to = y.tensor(), .residual = y.tensor()}, *context);
        ExpectBytes(y.Bytes(), added);
      }
    });
  }
}

TEST(SparseDots, ForwardIsTheSumOfPairsToTheBit) {
  ForEachCase(kSparseCases, CheckForward);
}

// Mean and variance of what is stored: the same for all numbers of threads,
// and those of the values within the error of f32 sums.
void CheckMoments(const SparseCase& of) {
  ForwardCall call(of);
  const FusedCase& c = call.c;
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

TEST(SparseDots, ForwardMomentsAreThoseOfWhatIsStored) {
  ForEachCase(kSparseCases, CheckMoments);
}

struct GradCall {
  explicit GradCall(const SparseCase& of)
      : c(InBlocks(of)),
        w(of),
        grad_y(kBF16, OutputSize(c), 1),
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
    return dot::SparseGradInput(c.shape, c.images, grad_y.Floats(),
                                w.Dense(WeightSize(c)),
                                PassOf(c.shape, false).chunk);
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
  SparseWeightsOf w;
  StoredTensor grad_y, x, residual;
  std::vector<float> scale, shift, mean, inv_std, gamma, grad_gamma, grad_beta;
};

void CheckGradInput(const SparseCase& of) {
  GradCall call(of);
  const FusedCase& c = call.c;
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

TEST(SparseDots, GradientOfTheInputIsTheSumOfPairsToTheBit) {
  ForEachCase(kSparseCases, CheckGradInput);
}

// The sums without a stored gradient, and the second pass with them: what batch
// norm makes of the stored one.
void CheckNormGrad(const SparseCase& of) {
  GradCall call(of);
  const FusedCase& c = call.c;
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

TEST(SparseDots, GradientThroughTheNormIsThatOfWhatIsStored) {
  ForEachCase(kSparseCases, CheckNormGrad);
}

TEST(SparseDots, LargeShapesAreTheSumOfPairsToTheBit) {
  ForEachCase(kLargeSparseCases, CheckForward);
  ForEachCase(kLargeSparseCases, CheckMoments);
  ForEachCase(kLargeSparseCases, CheckGradInput);
  ForEachCase(kLargeSparseCases, CheckNormGrad);
}

// What completes a pair is no pixel of the image.
TEST(SparseDots, InfinityReachesOnlyWhatKeepsAWeightForIt) {
  ForEachCase(kSparseCases, [](const SparseCase& of) {
    ForwardCall call(of);
    call.x.Set(0, std::numeric_limits<float>::infinity());
    const std::vector<uint8_t> want = Stored(call.Sums(false, false), nullptr);
    ForEachDotForm([&] {
      const TestContext context(2, Conv2dForwardWorkspace(call.c.shape));
      StoredTensor y(kBF16, OutputSize(call.c));
      Conv2dForward(call.c.shape, call.c.images, call.Input(false, false),
                    call.w.tensor(), {.to = y.tensor()}, *context);
      ExpectBytes(y.Bytes(), want);
    });
  });
}

}  // namespace
}  // namespace thimble::kernels
