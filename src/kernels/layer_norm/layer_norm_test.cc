// SPDX-License-Identifier: Apache-2.0
#include "kernels/layer_norm/layer_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <limits>
#include <tuple>
#include <vector>

#include "kernels/layer_norm/reference.h"
#include "kernels/layer_norm/test_rows.h"
#include "kernels/stored_tensor.h"
#include "kernels/testing.h"

namespace thimble::kernels {
namespace {

using testing::Doubles;
using testing::ForEachFloatType;
using testing::ForEachTarget;
using testing::GuardedBuffer;
using testing::kEpsilon;
using testing::OverThreads;
using testing::Rows;
using testing::StoredTensor;
using testing::SumErrorBound;
using testing::TestContext;

// Around the widths of vectors and of the chains of a sum; around the rows of a
// partial sum, and of those that are merged at once.
std::vector<std::tuple<int64_t, int64_t>> Shapes() {
  std::vector<std::tuple<int64_t, int64_t>> shapes;
  for (int64_t features = 1; features <= 33; ++features) {
    shapes.emplace_back(1 + features % 5, features);
  }
  shapes.insert(shapes.end(), {{3, 63}, {2, 64}, {2, 65}, {3, 130}, {2, 512}});
  shapes.insert(shapes.end(), {{63, 5}, {64, 17}, {65, 4}, {129, 20}});
  shapes.insert(shapes.end(), {{1023, 3}, {1025, 2}, {2050, 1}});
  return shapes;
}

template <typename F>
void ForEachRows(const F& body) {
  ForEachFloatType([&](DType dtype) {
    for (const auto& [rows, features] : Shapes()) {
      SCOPED_TRACE(::testing::Message() << rows << "x" << features);
      Rows data(dtype, rows, features);
      body(data);
      if (::testing::Test::HasFatalFailure()) return;
    }
  });
}

void ExpectNear(StoredTensor& got, const Doubles& want, const Doubles& bound) {
  for (size_t i = 0; i < want.size(); ++i) {
    const double rounding =
        got.dtype() == DType::kF32
            ? 0.0
            : got.RoundingBound(std::abs(want[i]) + bound[i]);
    ASSERT_NEAR(got.Get(i), want[i], bound[i] + rounding) << "element " << i;
  }
}
void ExpectNear(const GuardedBuffer<float>& got, const Doubles& want,
                const Doubles& bound) {
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], bound[i]) << "element " << i;
  }
  got.CheckGuards("sums");
}

TEST(LayerNorm, MatchesReferenceAlsoInPlaceForAnyThreadCount) {
  ForEachRows([](Rows& data) {
    const auto run = [&](const ConstTensor& from, const Tensor& to,
                         const KernelContext& context) {
      LayerNorm(data.rows, data.features, kEpsilon, from, data.gamma.data(),
                data.beta.data(), to, context);
    };
    StoredTensor y(data.x.dtype(), data.size, 5);
    const Doubles got =
        OverThreads(y, [&](const Tensor& to, const KernelContext& context) {
          run(data.x.tensor(), to, context);
        });
    for (size_t i = 0; i < data.size; ++i) y.Set(i, static_cast<float>(got[i]));
    ExpectNear(y, data.y, data.y_bound);
    ASSERT_EQ(OverThreads(data.x,
                          [&](const Tensor& to, const KernelContext& context) {
                            run(to, to, context);
                          }),
              got);
  });
}

// Which tensor the gradient of x is written over, or that it is not wanted.
enum class Over : uint8_t { kNothing, kX, kGradY, kNotWanted };

struct Sums {
  explicit Sums(const Rows& data)
      : gamma(data.gamma.size(), 1), beta(data.gamma.size(), 3) {
    testing::FillRandom(gamma.span(), 7);
    testing::FillRandom(beta.span(), 8);
  }
  GuardedBuffer<float> gamma, beta;
};

// The bytes of grad_x.
std::vector<uint8_t> RunGrad(Rows& data, Over over, int threads, Sums& sums,
                             bool accumulate) {
  StoredTensor x(data.x.dtype(), data.size), grad_y(x.dtype(), data.size);
  StoredTensor grad_x(x.dtype(), data.size, 6);
  x.CopyFrom(data.x);
  grad_y.CopyFrom(data.grad_y);
  StoredTensor& to = over == Over::kX       ? x
                     : over == Over::kGradY ? grad_y
                                            : grad_x;
  // Room for more rows than there are.
  const TestContext context(
      threads, LayerNormGradWorkspace(data.rows + 70, data.features));
  LayerNormGrad(data.rows, data.features, kEpsilon, x.tensor(),
                data.gamma.data(), grad_y.tensor(),
                over == Over::kNotWanted ? Tensor::None() : to.tensor(),
                sums.gamma.data(), sums.beta.data(), *context, accumulate);
  return to.Bytes();
}

TEST(LayerNorm, GradientsMatchReferenceAlsoInPlaceForAnyThreadCount) {
  ForEachRows([](Rows& data) {
    Sums first(data);
    const std::vector<uint8_t> bytes =
        RunGrad(data, Over::kNothing, 1, first, false);
    StoredTensor grad_x(data.x.dtype(), data.size);
    std::memcpy(grad_x.data(), bytes.data(), bytes.size());
    ExpectNear(grad_x, data.grad_x, data.grad_x_bound);
    ExpectNear(first.gamma, data.grad_gamma, data.grad_gamma_bound);
    ExpectNear(first.beta, data.grad_beta, data.grad_beta_bound);
    int threads = 1;
    for (const Over over :
         {Over::kX, Over::kGradY, Over::kNothing, Over::kNotWanted}) {
      Sums sums(data);
      const auto again = RunGrad(data, over, 1 + threads++ % 3, sums, false);
      for (size_t i = 0; i < first.gamma.size(); ++i) {
        ASSERT_EQ(sums.gamma[i], first.gamma[i]) << i;
        ASSERT_EQ(sums.beta[i], first.beta[i]) << i;
      }
      if (over != Over::kNotWanted) {
        ASSERT_EQ(again, bytes);
      }
    }
  });
}

TEST(LayerNorm, SumsAreAddedToWhatIsThere) {
  ForEachRows([](Rows& data) {
    Sums before(data);
    std::vector<std::vector<float>> seen;
    for (const int threads : {1, 2, 3}) {
      Sums sums(data);
      RunGrad(data, Over::kNothing, threads, sums, true);
      Doubles gamma = data.grad_gamma, gamma_bound = data.grad_gamma_bound;
      Doubles beta = data.grad_beta, beta_bound = data.grad_beta_bound;
      for (size_t i = 0; i < gamma.size(); ++i) {
        // An addition for each partial sum.
        const int64_t terms = data.rows / kLayerNormRows + 1;
        const double a = before.gamma[i], b = before.beta[i];
        gamma[i] += a;
        gamma_bound[i] += SumErrorBound(terms, std::abs(a));
        beta[i] += b;
        beta_bound[i] += SumErrorBound(terms, std::abs(b));
      }
      ExpectNear(sums.gamma, gamma, gamma_bound);
      ExpectNear(sums.beta, beta, beta_bound);
      seen.emplace_back(sums.gamma.span().begin(), sums.gamma.span().end());
      ASSERT_EQ(seen.back(), seen.front());
    }
  });
}

TEST(LayerNorm, WritesNothingOutsideOfMisalignedTensors) {
  ForEachTarget([] {
    for (const int64_t features : {1, 7, 16, 21, 64, 77}) {
      for (const size_t misalign : {0, 1, 3}) {
        Rows data(DType::kF32, 3, features);
        GuardedBuffer<float> x(data.size, misalign), y(data.size, misalign);
        for (size_t i = 0; i < data.size; ++i) {
          x[i] = static_cast<float>(data.x.Get(i));
        }
        const TestContext context(2,
                                  LayerNormGradWorkspace(data.rows, features));
        LayerNorm(data.rows, features, kEpsilon, F32(x.data()),
                  data.gamma.data(), data.beta.data(), F32(y.data()), *context);
        ExpectNear(y, data.y, data.y_bound);
        Sums sums(data);
        LayerNormGrad(data.rows, features, kEpsilon, F32(x.data()),
                      data.gamma.data(), data.grad_y.tensor(), F32(y.data()),
                      sums.gamma.data(), sums.beta.data(), *context);
        ExpectNear(y, data.grad_x, data.grad_x_bound);
        x.CheckGuards("x");
        y.CheckGuards("y");
      }
    }
  });
}

// A row is the same to the bit wherever it is, whatever the others hold.
TEST(LayerNorm, RowsDoNotDependOnOthers) {
  ForEachFloatType([](DType dtype) {
    Rows data(dtype, 70, 19);
    const TestContext context(2, LayerNormGradWorkspace(70, 19));
    const auto made = [&](int64_t first, int64_t rows) {
      const auto n = static_cast<size_t>(rows * 19);
      StoredTensor y(dtype, n), grad_x(dtype, n);
      Sums sums(data);
      const ConstTensor x = data.x.tensor(), grad_y = data.grad_y.tensor();
      LayerNorm(rows, 19, kEpsilon, x.From(first * 19), data.gamma.data(),
                data.beta.data(), y.tensor(), *context);
      LayerNormGrad(rows, 19, kEpsilon, x.From(first * 19), data.gamma.data(),
                    grad_y.From(first * 19), grad_x.tensor(), sums.gamma.data(),
                    sums.beta.data(), *context);
      Doubles all = y.Wide();
      const Doubles grads = grad_x.Wide();
      all.insert(all.end(), grads.begin(), grads.end());
      return all;
    };
    const Doubles all = made(0, 70), one = made(66, 1);
    for (size_t i = 0; i < 19; ++i) {
      ASSERT_EQ(one[i], all[66 * 19 + i]);
      ASSERT_EQ(one[19 + i], all[(70 + 66) * 19 + i]);
    }
  });
}

TEST(LayerNorm, EqualValuesHaveNoVariance) {
  ForEachTarget([] {
    const std::vector<float> x(37, 3.5f), gamma(37, 2.0f), beta(37, 0.25f);
    std::vector<float> y(37);
    const TestContext context(1);
    LayerNorm(1, 37, kEpsilon, F32(x.data()), gamma.data(), beta.data(),
              F32(y.data()), *context);
    for (const float value : y) EXPECT_EQ(value, 0.25f);
  });
}

TEST(LayerNorm, NoRowsHaveGradientsOfZero) {
  ForEachTarget([] {
    std::vector<float> gamma(5, 1.0f), sums(10, 7.0f);
    const TestContext context(2, LayerNormGradWorkspace(4, 5));
    LayerNormGrad(0, 5, kEpsilon, F32(gamma.data()), gamma.data(),
                  F32(gamma.data()), Tensor::None(), sums.data(),
                  sums.data() + 5, *context);
    EXPECT_EQ(sums, std::vector<float>(10, 0.0f));
  });
}

// The definition's gradient against the derivative of its forward pass by the
// complex step, which has no error but rounding.
TEST(LayerNormReference, GradientIsThatOfTheForwardPass) {
  using Complex = std::complex<double>;
  constexpr double kStep = 1e-100;
  constexpr int64_t kRows = 2, kFeatures = 5;
  Rows data(DType::kF32, kRows, kFeatures);
  const Doubles grads = data.grad_y.Wide();
  const Doubles wide = data.x.Wide();
  std::vector<Complex> x(wide.begin(), wide.end());
  std::vector<Complex> gamma(data.gamma.begin(), data.gamma.end());
  std::vector<Complex> beta(data.beta.begin(), data.beta.end());
  const auto derivative = [&](Complex& by) {
    std::vector<Complex> y(data.size);
    by += Complex(0, kStep);
    reference::LayerNorm(kRows, kFeatures, double{kEpsilon}, x.data(),
                         gamma.data(), beta.data(), y.data());
    by = by.real();
    double sum = 0;
    for (size_t i = 0; i < data.size; ++i) sum += grads[i] * y[i].imag();
    return sum / kStep;
  };
  const double bound = 64 * kFeatures * std::numeric_limits<double>::epsilon();
  for (size_t i = 0; i < data.size; ++i) {
    EXPECT_NEAR(derivative(x[i]), data.grad_x[i], bound) << i;
  }
  for (size_t i = 0; i < gamma.size(); ++i) {
    EXPECT_NEAR(derivative(gamma[i]), data.grad_gamma[i], bound) << i;
    EXPECT_NEAR(derivative(beta[i]), data.grad_beta[i], bound) << i;
  }
}

}  // namespace
}  // namespace thimble::kernels
