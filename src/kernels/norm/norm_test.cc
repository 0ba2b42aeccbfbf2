// SPDX-License-Identifier: Apache-2.0
#include "kernels/norm/norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/guard_page.h"
#include "kernels/norm/reference.h"
#include "kernels/norm/test_batch.h"
#include "kernels/testing.h"

namespace thimble::kernels {
namespace {

using testing::AppliedCase;
using testing::Batch;
using testing::Bits;
using testing::Doubles;
using testing::FillRandom;
using testing::ForEachTarget;
using testing::GradCase;
using testing::GuardedBuffer;
using testing::GuardPageBuffer;
using testing::kEpsilon;
using testing::kUnit;
using testing::StatisticsBounds;
using testing::TestContext;
using testing::Wide;

void CheckApplied(const Batch& batch, const GuardedBuffer<float>& mean,
                  const GuardedBuffer<float>& variance,
                  const GuardedBuffer<float>& y) {
  const AppliedCase want(batch, mean, variance);
  for (size_t i = 0; i < batch.size; ++i) {
    ASSERT_NEAR(y[i], want.y[i], want.bound[i]) << i;
  }
}

void CheckTrain(const Batch& batch, size_t misalign) {
  Doubles want_mean(batch.channels), want_variance(batch.channels);
  reference::BatchNormStatistics(batch.shape, batch.images,
                                 Wide(batch.x).data(), want_mean.data(),
                                 want_variance.data());
  const StatisticsBounds bounds(batch, want_mean, want_variance);
  std::vector<std::vector<uint32_t>> first;
  for (int threads : {1, 2, 3}) {
    TestContext context(threads);
    GuardedBuffer<float> y(batch.size, misalign), in_place(batch.size, 3);
    GuardedBuffer<float> applied(batch.size);
    GuardedBuffer<float> mean(batch.channels, 1), variance(batch.channels, 3);
    for (size_t i = 0; i < batch.size; ++i) in_place[i] = batch.x[i];
    BatchNormTrain(batch.shape, batch.images, kEpsilon, F32(batch.x.data()),
                   batch.gamma.data(), batch.beta.data(), F32(y.data()),
                   mean.data(), variance.data(), *context);
    for (size_t c = 0; c < batch.channels; ++c) {
      ASSERT_NEAR(mean[c], want_mean[c], bounds.mean[c]) << c;
      ASSERT_NEAR(variance[c], want_variance[c], bounds.variance[c]) << c;
    }
    CheckApplied(batch, mean, variance, y);
    if (threads == 1) first = {Bits(y), Bits(mean), Bits(variance)};
    ASSERT_EQ(Bits(y), first[0]);
    ASSERT_EQ(Bits(mean), first[1]);
    ASSERT_EQ(Bits(variance), first[2]);
    BatchNormApply(batch.shape, batch.images, kEpsilon, F32(batch.x.data()),
                   batch.gamma.data(), batch.beta.data(), mean.data(),
                   variance.data(), F32(applied.data()), *context);
    ASSERT_EQ(Bits(applied), first[0]);
    BatchNormTrain(batch.shape, batch.images, kEpsilon, F32(in_place.data()),
                   batch.gamma.data(), batch.beta.data(), F32(in_place.data()),
                   mean.data(), variance.data(), *context);
    ASSERT_EQ(Bits(in_place), first[0]);
    for (const auto* b : {&y, &in_place, &applied, &mean, &variance}) {
      b->CheckGuards("train");
    }
  }
}

// With sums that are added to what is there, grad_x stays the same. A sum is
// rounded when it is stored, alone or after the addition in f64: half a unit of
// either.
void CheckAccumulatedGrad(const Batch& batch, const GradCase& want,
                          const KernelContext& context,
                          const GuardedBuffer<float>& alone_x,
                          const GuardedBuffer<float>& alone_gamma,
                          const GuardedBuffer<float>& alone_beta) {
  GuardedBuffer<float> grad_x(batch.size, 1);
  GuardedBuffer<float> grad_gamma(batch.channels, 1);
  GuardedBuffer<float> grad_beta(batch.channels, 1);
  FillRandom(grad_gamma.span(), 21);
  FillRandom(grad_beta.span(), 22);
  const Doubles old_gamma = Wide(grad_gamma), old_beta = Wide(grad_beta);
  BatchNormGrad(batch.shape, batch.images, kEpsilon, F32(batch.x.data()),
                batch.gamma.data(), want.mean.data(), want.variance.data(),
                F32(batch.grad_y.data()), F32(grad_x.data()), grad_gamma.data(),
                grad_beta.data(), context, /*accumulate=*/true);
  ASSERT_EQ(Bits(grad_x), Bits(alone_x));
  const auto expect_sum = [](double old, double part, double got) {
    const double size = std::fabs(part) + std::fabs(old + part);
    ASSERT_NEAR(got, old + part, (1 + kUnit) * kUnit * size);
  };
  for (size_t c = 0; c < batch.channels; ++c) {
    expect_sum(old_gamma[c], alone_gamma[c], grad_gamma[c]);
    expect_sum(old_beta[c], alone_beta[c], grad_beta[c]);
  }
  for (const auto* b : {&grad_x, &grad_gamma, &grad_beta}) {
    b->CheckGuards("accumulated");
  }
}

void CheckGradValues(const Batch& batch, const GradCase& want,
                     const GuardedBuffer<float>& grad_x,
                     const GuardedBuffer<float>& grad_gamma,
                     const GuardedBuffer<float>& grad_beta) {
  for (size_t c = 0; c < batch.channels; ++c) {
    ASSERT_NEAR(grad_beta[c], want.beta[c], want.bound_beta[c]) << c;
    ASSERT_NEAR(grad_gamma[c], want.gamma[c], want.bound_gamma[c]) << c;
  }
  for (size_t i = 0; i < batch.size; ++i) {
    ASSERT_NEAR(grad_x[i], want.x[i], want.bound_x[i]) << i;
  }
}

void CheckGrad(const Batch& batch, size_t misalign) {
  const GradCase want(batch);
  std::vector<std::vector<uint32_t>> first;
  for (int threads : {1, 2, 3}) {
    TestContext context(threads);
    GuardedBuffer<float> grad_x(batch.size, misalign);
    GuardedBuffer<float> on_x(batch.size, 1), on_grad(batch.size, 3);
    GuardedBuffer<float> grad_gamma(batch.channels, 3);
    GuardedBuffer<float> grad_beta(batch.channels, 1);
    for (size_t i = 0; i < batch.size; ++i) {
      on_x[i] = batch.x[i];
      on_grad[i] = batch.grad_y[i];
    }
    const auto run = [&](const float* x, const float* grad_y,
                         const Tensor& out) {
      BatchNormGrad(batch.shape, batch.images, kEpsilon, F32(x),
                    batch.gamma.data(), want.mean.data(), want.variance.data(),
                    F32(grad_y), out, grad_gamma.data(), grad_beta.data(),
                    *context);
    };
    run(batch.x.data(), batch.grad_y.data(), F32(grad_x.data()));
    CheckGradValues(batch, want, grad_x, grad_gamma, grad_beta);
    if (threads == 1) first = {Bits(grad_x), Bits(grad_gamma), Bits(grad_beta)};
    run(on_x.data(), batch.grad_y.data(), F32(on_x.data()));
    run(batch.x.data(), on_grad.data(), F32(on_grad.data()));
    run(batch.x.data(), batch.grad_y.data(), Tensor::None());
    ASSERT_EQ(Bits(grad_x), first[0]);
    ASSERT_EQ(Bits(on_x), first[0]);
    ASSERT_EQ(Bits(on_grad), first[0]);
    ASSERT_EQ(Bits(grad_gamma), first[1]);
    ASSERT_EQ(Bits(grad_beta), first[2]);
    for (const auto* b : {&grad_x, &on_x, &on_grad, &grad_gamma, &grad_beta}) {
      b->CheckGuards("grad");
    }
    CheckAccumulatedGrad(batch, want, *context, grad_x, grad_gamma, grad_beta);
  }
}

// Images, channels, pixels: planes and rows of every length up to two of the
// widest vectors and one more; planes of several pieces.
std::vector<std::tuple<int64_t, int64_t, int64_t>> Shapes() {
  std::vector<std::tuple<int64_t, int64_t, int64_t>> shapes;
  for (int64_t n = 1; n <= 33; ++n) {
    shapes.emplace_back(1 + n % 3, 3, n);
    shapes.emplace_back(1 + n % 7, n, 1);
  }
  shapes.insert(shapes.end(), {{64, 130, 1},
                               {5, 4, 49},
                               {3, 2, 64},
                               {3, 5, 100},
                               {2, 2, 784},
                               {2, 1, 1023},
                               {2, 3, 2501}});
  return shapes;
}

TEST(BatchNorm, TrainAndGradMatchReferenceForAnyThreadCount) {
  ForEachTarget([] {
    for (const auto& [images, channels, pixels] : Shapes()) {
      for (size_t misalign : {0, 1, 3}) {
        SCOPED_TRACE(::testing::Message() << images << "x" << channels << "x"
                                          << pixels << " at " << misalign);
        const Batch batch({channels, pixels}, images, misalign);
        CheckTrain(batch, misalign);
        CheckGrad(batch, misalign);
      }
    }
  });
}

TEST(BatchNorm, StaysInsideItsTensors) {
  ForEachTarget([] {
    for (const auto& [images, channels, pixels] : Shapes()) {
      const BatchNormShape shape{channels, pixels};
      const auto size = static_cast<size_t>(images * channels * pixels);
      const auto c = static_cast<size_t>(channels);
      GuardPageBuffer<float> x(size), y(size), gamma(c), beta(c), mean(c);
      GuardPageBuffer<float> variance(c), grad_gamma(c), grad_beta(c);
      TestContext context(1);
      BatchNormTrain(shape, images, kEpsilon, F32(x.data()), gamma.data(),
                     beta.data(), F32(y.data()), mean.data(), variance.data(),
                     *context);
      BatchNormGrad(shape, images, kEpsilon, F32(x.data()), gamma.data(),
                    mean.data(), variance.data(), F32(y.data()), F32(y.data()),
                    grad_gamma.data(), grad_beta.data(), *context);
      BatchNormUpdateRunning(channels, 2, 0.1f, mean.data(), variance.data(),
                             gamma.data(), beta.data(), gamma.data(),
                             beta.data(), *context);
    }
  });
}

TEST(BatchNorm, TensorsOfDifferentTypesAndTypesThatAreNoFloatsAreRefused) {
  const BatchNormShape shape{2, 2};
  float data[4] = {}, c[2] = {}, d[2] = {};
  const Tensor f32 = F32(data), f16(data, DType::kF16), u8(data, DType::kU8);
  const TestContext context(1);
  for (const auto& [x, y] :
       {std::pair(f16, f32), std::pair(f32, f16), std::pair(u8, u8)}) {
    EXPECT_DEATH(BatchNormTrain(shape, 1, kEpsilon, x, c, c, y, d, d, *context),
                 "check failed");
    EXPECT_DEATH(BatchNormApply(shape, 1, kEpsilon, x, c, c, c, c, y, *context),
                 "check failed");
    EXPECT_DEATH(
        BatchNormGrad(shape, 1, kEpsilon, x, c, c, c, x, y, d, d, *context),
        "check failed");
  }
  EXPECT_DEATH(
      BatchNormGrad(shape, 1, kEpsilon, f32, c, c, c, f16, f32, d, d, *context),
      "check failed");
}

// E[x²] − E[x]² in f32 would be off by 1000²·2⁻²⁴ = 0.06 here, a thousand times
// the variance of 3.3e-5.
TEST(BatchNorm, SmallVarianceAroundLargeMeanIsKept) {
  ForEachTarget([] {
    for (const auto& [images, channels, pixels] :
         {std::tuple<int64_t, int64_t, int64_t>{4, 3, 1000},
          {4, 3, 4096},
          {16, 2, 49},
          {200, 9, 1}}) {
      const Batch batch({channels, pixels}, images, 1, 1000.0f, 1e-2f);
      CheckTrain(batch, 0);
    }
  });
}

TEST(BatchNorm, ReferenceGradientIsTheComplexStepOfTheReferenceForward) {
  using Complex = std::complex<double>;
  const Batch batch({3, 4}, 2, 0);
  Doubles x = Wide(batch.x), gamma = Wide(batch.gamma), w = Wide(batch.grad_y);
  Doubles mean(3), variance(3), grad_x(batch.size), grad_gamma(3), grad_beta(3);
  reference::BatchNormStatistics(batch.shape, 2, x.data(), mean.data(),
                                 variance.data());
  reference::BatchNormGrad(batch.shape, 2, kEpsilon, x.data(), gamma.data(),
                           mean.data(), variance.data(), w.data(),
                           grad_x.data(), grad_gamma.data(), grad_beta.data());
  // The directional derivative of Σ w·y along element i of `values`.
  std::vector<Complex> cx(x.begin(), x.end()), cg(gamma.begin(), gamma.end());
  std::vector<Complex> cb(batch.beta.data(), batch.beta.data() + 3);
  const double h = 1e-30;
  const auto derivative = [&](std::vector<Complex>& values, size_t i) {
    std::vector<Complex> y(batch.size), m(3), v(3);
    const Complex before = values[i];
    values[i] += Complex(0.0, h);
    reference::BatchNormTrain(batch.shape, 2, kEpsilon, cx.data(), cg.data(),
                              cb.data(), y.data(), m.data(), v.data());
    values[i] = before;
    double sum = 0.0;
    for (size_t k = 0; k < y.size(); ++k) sum += w[k] * y[k].imag();
    return sum / h;
  };
  // Fewer than 100 operations on values of at most about 10.
  const double bound = 1000 * std::numeric_limits<double>::epsilon();
  for (size_t i = 0; i < batch.size; ++i) {
    EXPECT_NEAR(grad_x[i], derivative(cx, i), bound);
  }
  for (size_t c = 0; c < 3; ++c) {
    EXPECT_NEAR(grad_gamma[c], derivative(cg, c), bound);
    EXPECT_NEAR(grad_beta[c], derivative(cb, c), bound);
  }
}

}  // namespace
}  // namespace thimble::kernels
