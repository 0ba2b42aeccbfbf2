// SPDX-License-Identifier: Apache-2.0
#include "kernels/matmul/matmul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <cstdlib>
#include <limits>
#include <memory>
#include <ostream>
#include <span>
#include <utility>
#include <vector>

#include "kernels/matmul/reference.h"
#include "kernels/testing.h"

namespace thimble::kernels {
namespace {

using testing::FillRandom;
using testing::ForEachTarget;
using testing::GuardedBuffer;
using testing::SumErrorBound;
using testing::TestContext;

struct Case {
  LinearShape shape;
  int64_t rows;
};

// Around the widths of vectors, panels and register tiles of every target, past
// the depth of a panel (256) and the columns of a block (1024) in each of the
// three dimensions, and real layers.
const Case kCases[] = {
    {{1, 1}, 1},       {{2, 3}, 1},       {{3, 2}, 5},       {{7, 5}, 6},
    {{8, 8}, 8},       {{9, 15}, 7},      {{15, 9}, 13},     {{16, 16}, 12},
    {{17, 31}, 9},     {{31, 17}, 16},    {{33, 33}, 17},    {{64, 10}, 10},
    {{10, 64}, 3},     {{49, 50}, 25},    {{257, 5}, 3},     {{5, 257}, 4},
    {{65, 33}, 259},   {{513, 20}, 2},    {{128, 10}, 100},  {{300, 100}, 33},
    {{1030, 20}, 190}, {{20, 1030}, 190}, {{17, 520}, 1030},
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << "in=" << c.shape.in << " out=" << c.shape.out
             << " rows=" << c.rows;
}

std::vector<double> Wide(const GuardedBuffer<float>& values) {
  return {values.data(), values.data() + values.size()};
}

std::vector<double> Magnitudes(const GuardedBuffer<float>& values) {
  std::vector<double> result = Wide(values);
  for (double& value : result) value = std::abs(value);
  return result;
}

std::vector<float> Bits(const GuardedBuffer<float>& values) {
  return {values.data(), values.data() + values.size()};
}

// Checks `got` against sums of `terms` products with known magnitudes.
void ExpectWithinBound(const GuardedBuffer<float>& got,
                       const std::vector<double>& want,
                       const std::vector<double>& magnitudes, int64_t terms) {
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], SumErrorBound(terms, magnitudes[i]))
        << "element " << i;
  }
}

// The tensors of one case, filled with reproducible values.
struct Tensors {
  explicit Tensors(const Case& c, size_t misalign)
      : x(static_cast<size_t>(c.rows * c.shape.in), misalign),
        w(static_cast<size_t>(c.shape.out * c.shape.in), 3 * misalign),
        grad_y(static_cast<size_t>(c.rows * c.shape.out), misalign) {
    FillRandom(x.span(), 1);
    FillRandom(w.span(), 2);
    FillRandom(grad_y.span(), 3);
  }
  GuardedBuffer<float> x, w, grad_y;
};

TEST(Matmul, ForwardMatchesReferenceForAnyThreadCount) {
  ForEachTarget([] {
    for (const Case& c : kCases) {
      SCOPED_TRACE(::testing::Message() << c);
      const Tensors t(c, static_cast<size_t>(c.rows % 2));
      const size_t size = t.grad_y.size();
      std::vector<double> want(size), magnitudes(size);
      reference::LinearForward(c.shape, c.rows, Wide(t.x).data(),
                               Wide(t.w).data(), want.data());
      reference::LinearForward(c.shape, c.rows, Magnitudes(t.x).data(),
                               Magnitudes(t.w).data(), magnitudes.data());
      std::vector<float> first;
      for (int threads : {1, 2, 3}) {
        const TestContext context(threads, LinearForwardWorkspace(c.shape));
        GuardedBuffer<float> y(size, 1);
        LinearForward(c.shape, c.rows, F32(t.x.data()), F32(t.w.data()),
                      {F32(y.data())}, *context);
        y.CheckGuards("y");
        ExpectWithinBound(y, want, magnitudes, c.shape.in);
        if (threads == 1) first = Bits(y);
        ASSERT_EQ(Bits(y), first) << "threads=" << threads;
      }
    }
  });
}

TEST(Matmul, GradInputMatchesReferenceForAnyThreadCount) {
  ForEachTarget([] {
    for (const Case& c : kCases) {
      SCOPED_TRACE(::testing::Message() << c);
      const Tensors t(c, static_cast<size_t>(c.rows % 2));
      const size_t size = t.x.size();
      std::vector<double> want(size), magnitudes(size);
      reference::LinearGradInput(c.shape, c.rows, Wide(t.grad_y).data(),
                                 Wide(t.w).data(), want.data());
      reference::LinearGradInput(c.shape, c.rows, Magnitudes(t.grad_y).data(),
                                 Magnitudes(t.w).data(), magnitudes.data());
      std::vector<float> first;
      for (int threads : {1, 2, 3}) {
        const TestContext context(threads, LinearGradInputWorkspace(c.shape));
        GuardedBuffer<float> grad_x(size, 1);
        LinearGradInput(c.shape, c.rows, F32(t.grad_y.data()), F32(t.w.data()),
                        {F32(grad_x.data())}, *context);
        grad_x.CheckGuards("grad_x");
        ExpectWithinBound(grad_x, want, magnitudes, c.shape.out);
        if (threads == 1) first = Bits(grad_x);
        ASSERT_EQ(Bits(grad_x), first) << "threads=" << threads;
      }
    }
  });
}

TEST(Matmul, GradWeightMatchesReferenceForAnyThreadCount) {
  ForEachTarget([] {
    for (const Case& c : kCases) {
      SCOPED_TRACE(::testing::Message() << c);
      const Tensors t(c, static_cast<size_t>(c.rows % 2));
      const size_t size = t.w.size();
      std::vector<double> want(size), magnitudes(size);
      reference::LinearGradWeight(c.shape, c.rows, Wide(t.x).data(),
                                  Wide(t.grad_y).data(), want.data());
      reference::LinearGradWeight(c.shape, c.rows, Magnitudes(t.x).data(),
                                  Magnitudes(t.grad_y).data(),
                                  magnitudes.data());
      std::vector<float> first;
      for (int threads : {1, 2, 3}) {
        const TestContext context(threads, LinearGradWeightWorkspace(c.shape));
        GuardedBuffer<float> grad_w(size, 1);
        LinearGradWeight(c.shape, c.rows, F32(t.x.data()), F32(t.grad_y.data()),
                         {F32(grad_w.data())}, *context);
        grad_w.CheckGuards("grad_w");
        ExpectWithinBound(grad_w, want, magnitudes, c.rows);
        if (threads == 1) first = Bits(grad_w);
        ASSERT_EQ(Bits(grad_w), first) << "threads=" << threads;
      }
    }
  });
}

// Runs kernel(target, context) with an addend apart from the result and as the
// result itself; both must be the sums `want` plus the addend.
template <typename F>
void CheckAddend(const Workspace& workspace, const std::vector<double>& want,
                 const std::vector<double>& magnitudes, int64_t terms,
                 const F& kernel) {
  const TestContext context(2, workspace);
  GuardedBuffer<float> apart(want.size(), 1), addend(want.size());
  FillRandom(addend.span(), 4);
  std::vector<double> sums = want, sizes = magnitudes;
  for (size_t i = 0; i < want.size(); ++i) {
    sums[i] += addend[i];
    sizes[i] += std::abs(addend[i]);
  }
  kernel(LinearTarget{.to = F32(apart.data()), .addend = F32(addend.data())},
         *context);
  ExpectWithinBound(apart, sums, sizes, terms + 1);
  kernel(LinearTarget{.to = F32(addend.data()), .addend = F32(addend.data())},
         *context);
  ASSERT_EQ(Bits(addend), Bits(apart)) << "in place";
  apart.CheckGuards("result");
  addend.CheckGuards("addend");
}

TEST(Matmul, ResultsAreAddedToTheAddendAlsoInPlace) {
  ForEachTarget([] {
    for (const Case& c : kCases) {
      SCOPED_TRACE(::testing::Message() << c);
      const Tensors t(c, 1);
      std::vector<double> want(t.grad_y.size()), magnitudes(want.size());
      reference::LinearForward(c.shape, c.rows, Wide(t.x).data(),
                               Wide(t.w).data(), want.data());
      reference::LinearForward(c.shape, c.rows, Magnitudes(t.x).data(),
                               Magnitudes(t.w).data(), magnitudes.data());
      CheckAddend(LinearForwardWorkspace(c.shape), want, magnitudes, c.shape.in,
                  [&](const LinearTarget& y, const KernelContext& context) {
                    LinearForward(c.shape, c.rows, F32(t.x.data()),
                                  F32(t.w.data()), y, context);
                  });
      want.resize(t.x.size());
      magnitudes.resize(t.x.size());
      reference::LinearGradInput(c.shape, c.rows, Wide(t.grad_y).data(),
                                 Wide(t.w).data(), want.data());
      reference::LinearGradInput(c.shape, c.rows, Magnitudes(t.grad_y).data(),
                                 Magnitudes(t.w).data(), magnitudes.data());
      CheckAddend(
          LinearGradInputWorkspace(c.shape), want, magnitudes, c.shape.out,
          [&](const LinearTarget& grad_x, const KernelContext& context) {
            LinearGradInput(c.shape, c.rows, F32(t.grad_y.data()),
                            F32(t.w.data()), grad_x, context);
          });
      want.resize(t.w.size());
      magnitudes.resize(t.w.size());
      reference::LinearGradWeight(c.shape, c.rows, Wide(t.x).data(),
                                  Wide(t.grad_y).data(), want.data());
      reference::LinearGradWeight(c.shape, c.rows, Magnitudes(t.x).data(),
                                  Magnitudes(t.grad_y).data(),
                                  magnitudes.data());
      CheckAddend(
          LinearGradWeightWorkspace(c.shape), want, magnitudes, c.rows,
          [&](const LinearTarget& grad_w, const KernelContext& context) {
            LinearGradWeight(c.shape, c.rows, F32(t.x.data()),
                             F32(t.grad_y.data()), grad_w, context);
          });
    }
  });
}

TEST(Matmul, RowDoesNotDependOnTheRowsBesideIt) {
  ForEachTarget([] {
    const Case c = {{37, 41}, 19};
    const Tensors t(c, 1);
    GuardedBuffer<float> y(t.grad_y.size()), grad_x(t.x.size());
    const TestContext forward(2, LinearForwardWorkspace(c.shape));
    const TestContext backward(2, LinearGradInputWorkspace(c.shape));
    LinearForward(c.shape, c.rows, F32(t.x.data()), F32(t.w.data()),
                  {F32(y.data())}, *forward);
    LinearGradInput(c.shape, c.rows, F32(t.grad_y.data()), F32(t.w.data()),
                    {F32(grad_x.data())}, *backward);
    for (int64_t r = 0; r < c.rows; ++r) {
      GuardedBuffer<float> one(static_cast<size_t>(c.shape.out));
      LinearForward(c.shape, 1, F32(t.x.data() + r * c.shape.in),
                    F32(t.w.data()), {F32(one.data())}, *forward);
      const float* row = y.data() + r * c.shape.out;
      ASSERT_EQ(Bits(one), std::vector<float>(row, row + c.shape.out));
      GuardedBuffer<float> grad(static_cast<size_t>(c.shape.in));
      LinearGradInput(c.shape, 1, F32(t.grad_y.data() + r * c.shape.out),
                      F32(t.w.data()), {F32(grad.data())}, *backward);
      row = grad_x.data() + r * c.shape.in;
      ASSERT_EQ(Bits(grad), std::vector<float>(row, row + c.shape.in));
    }
  });
}

TEST(Matmul, NoRowsWriteNothingButZeroWeightGradients) {
  ForEachTarget([] {
    const LinearShape shape = {20, 30};
    GuardedBuffer<float> none(0), w(600), grad_w(600, 1);
    FillRandom(w.span(), 1);
    FillRandom(grad_w.span(), 2);
    const TestContext forward(2, LinearForwardWorkspace(shape));
    const TestContext backward(2, LinearGradInputWorkspace(shape));
    const TestContext weight(2, LinearGradWeightWorkspace(shape));
    LinearForward(shape, 0, F32(none.data()), F32(w.data()), {F32(none.data())},
                  *forward);
    LinearGradInput(shape, 0, F32(none.data()), F32(w.data()),
                    {F32(none.data())}, *backward);
    none.CheckGuards("none");
    LinearGradWeight(shape, 0, F32(none.data()), F32(none.data()),
                     {F32(grad_w.data())}, *weight);
    grad_w.CheckGuards("grad_w");
    for (size_t i = 0; i < 600; ++i) ASSERT_EQ(grad_w[i], 0.0f);
    LinearGradWeight(shape, 0, F32(none.data()), F32(none.data()),
                     {.to = F32(grad_w.data()), .addend = F32(w.data())},
                     *weight);
    ASSERT_EQ(Bits(grad_w), Bits(w)) << "nothing is added";
  });
}

TEST(Matmul, TypesThatAreNoFloatsAndAddendsOfAnotherTypeAreRefused) {
  const LinearShape shape = {4, 4};
  float data[16] = {};
  const Tensor f32 = F32(data), u8(data, DType::kU8), f16(data, DType::kF16);
  const TestContext context(1, LinearGradWeightWorkspace(shape));
  const auto dies = [&](const auto& kernel) {
    EXPECT_DEATH(kernel(shape, 2, u8, f32, {f32}, *context), "check failed");
    EXPECT_DEATH(kernel(shape, 2, f32, u8, {f32}, *context), "check failed");
    EXPECT_DEATH(kernel(shape, 2, f32, f32, {u8}, *context), "check failed");
    EXPECT_DEATH(kernel(shape, 2, f32, f32, {f32, f16}, *context),
                 "check failed");
  };
  dies(LinearForward);
  dies(LinearGradInput);
  dies(LinearGradWeight);
}

// Tensors and scratch that end where their allocations end, for
// AddressSanitizer.
TEST(Matmul, StaysInsideItsAllocations) {
  using Kernel =
      void (*)(const LinearShape&, int64_t, const ConstTensor&,
               const ConstTensor&, const LinearTarget&, const KernelContext&);
  const auto run = [](Kernel kernel, const Case& c, const Workspace& workspace,
                      std::vector<float> a, std::vector<float> b,
                      int64_t size) {
    FillRandom(std::span(a), 1);
    FillRandom(std::span(b), 2);
    const auto pool = std::move(*ThreadPool::Create(1));
    const std::unique_ptr<void, decltype(&std::free)> scratch(
        std::aligned_alloc(kAlignment, TotalBytes(workspace, 1)), &std::free);
    KernelContext context;
    context.pool = pool.get();
    context.scratch = static_cast<std::byte*>(scratch.get());
    context.workspace = workspace;
    std::vector<float> got(static_cast<size_t>(size));
    kernel(c.shape, c.rows, F32(a.data()), F32(b.data()), {F32(got.data())},
           context);
    for (float value : got) ASSERT_TRUE(std::isfinite(value));
  };
  ForEachTarget([&] {
    for (const Case& c : kCases) {
      SCOPED_TRACE(::testing::Message() << c);
      const int64_t in = c.shape.in, out = c.shape.out;
      const std::vector<float> x(static_cast<size_t>(c.rows * in));
      const std::vector<float> w(static_cast<size_t>(out * in));
      const std::vector<float> grad_y(static_cast<size_t>(c.rows * out));
      run(LinearForward, c, LinearForwardWorkspace(c.shape), x, w,
          c.rows * out);
      run(LinearGradInput, c, LinearGradInputWorkspace(c.shape), grad_y, w,
          c.rows * in);
      run(LinearGradWeight, c, LinearGradWeightWorkspace(c.shape), x, grad_y,
          out * in);
    }
  });
}

// The derivative of sum(grad_y * y) along one coordinate is the imaginary part
// of its value at a step of i*h, over h: no difference is taken, so it is exact
// to rounding for any small h.
TEST(Matmul, ReferenceGradientsMatchComplexStep) {
  using Complex = std::complex<double>;
  constexpr double kStep = 1e-30;
  const Case c = {{6, 4}, 3};
  const Tensors t(c, 0);
  const std::vector<double> x = Wide(t.x), w = Wide(t.w);
  const std::vector<double> grad_y = Wide(t.grad_y);
  std::vector<double> grad_x(x.size()), grad_w(w.size());
  reference::LinearGradInput(c.shape, c.rows, grad_y.data(), w.data(),
                             grad_x.data());
  reference::LinearGradWeight(c.shape, c.rows, x.data(), grad_y.data(),
                              grad_w.data());
  const auto derivative = [&](const std::vector<Complex>& at_x,
                              const std::vector<Complex>& at_w) {
    std::vector<Complex> y(grad_y.size());
    reference::LinearForward(c.shape, c.rows, at_x.data(), at_w.data(),
                             y.data());
    double sum = 0;
    for (size_t i = 0; i < y.size(); ++i) sum += grad_y[i] * y[i].imag();
    return sum / kStep;
  };
  const double bound = 100 * std::numeric_limits<double>::epsilon();
  std::vector<Complex> at_x(x.begin(), x.end()), at_w(w.begin(), w.end());
  for (size_t i = 0; i < x.size(); ++i) {
    at_x[i] += Complex(0, kStep);
    EXPECT_NEAR(grad_x[i], derivative(at_x, at_w), bound);
    at_x[i] = x[i];
  }
  for (size_t i = 0; i < w.size(); ++i) {
    at_w[i] += Complex(0, kStep);
    EXPECT_NEAR(grad_w[i], derivative(at_x, at_w), bound);
    at_w[i] = w[i];
  }
}

}  // namespace
}  // namespace thimble::kernels
