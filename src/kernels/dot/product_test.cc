// SPDX-License-Identifier: Apache-2.0
//
// The linear map and its gradients in bf16 by dot products, to the bit.
#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/dot/product_reference.h"
#include "kernels/dot/test_form.h"
#include "kernels/matmul/matmul.h"
#include "kernels/stored_tensor.h"
#include "kernels/testing.h"

namespace thimble::kernels {
namespace {

using testing::ForEachDotForm;
using testing::StoredTensor;
using testing::TestContext;

constexpr DType kF32 = DType::kF32, kBF16 = DType::kBF16;

// Around the lanes, the groups of rows, the columns of both kinds of blocks and
// the depth of a panel, in each of the three dimensions.
struct DotCase {
  LinearShape shape;
  int64_t rows;
};
const DotCase kDotCases[] = {
    {{1, 1}, 1},    {{2, 3}, 1},   {{7, 5}, 6},   {{16, 16}, 16}, {{17, 31}, 9},
    {{33, 33}, 17}, {{257, 5}, 3}, {{5, 257}, 4}, {{9, 5}, 259},
};
const DotCase kLargeDotCases[] = {
    {{48, 40}, 32},   {{300, 140}, 13}, {{140, 300}, 13}, {{7, 130}, 530},
    {{512, 176}, 35}, {{176, 48}, 512}, {{150, 70}, 300}, {{130, 290}, 62},
};

// One of the three kernels as a product: c[m, n] = sum of a(m, k) * b(k, n).
enum class Kernel { kForward, kGradInput, kGradWeight };

struct DotCall {
  DotCall(Kernel of, const DotCase& c, DType to)
      : kernel(of),
        shape(c.shape),
        rows(c.rows),
        x(kBF16, static_cast<size_t>(rows * shape.in), 1),
        w(kBF16, static_cast<size_t>(shape.out * shape.in), 2),
        y(kBF16, static_cast<size_t>(rows * shape.out), 3),
        addend(to, Size(), 4) {}

  size_t Size() const {
    switch (kernel) {
      case Kernel::kForward:
        return y.size();
      case Kernel::kGradInput:
        return x.size();
      case Kernel::kGradWeight:
        return w.size();
    }
    return 0;
  }

  Workspace workspace() const {
    const LinearStorage storage = {kBF16, kBF16, addend.dtype()};
    switch (kernel) {
      case Kernel::kForward:
        return LinearForwardWorkspace(shape, storage);
      case Kernel::kGradInput:
        return LinearGradInputWorkspace(shape, storage);
      case Kernel::kGradWeight:
        return LinearGradWeightWorkspace(shape, storage);
    }
    return {};
  }

  void Run(const LinearTarget& to, const KernelContext& context) {
    switch (kernel) {
      case Kernel::kForward:
        return LinearForward(shape, rows, x.tensor(), w.tensor(), to, context);
      case Kernel::kGradInput:
        return LinearGradInput(shape, rows, y.tensor(), w.tensor(), to,
                               context);
      case Kernel::kGradWeight:
        return LinearGradWeight(shape, rows, x.tensor(), y.tensor(), to,
                                context);
    }
  }

  // What the bytes of the result must be.
  std::vector<uint8_t> Want(bool with_addend) {
    const std::vector<float> xs = x.Floats(), ws = w.Floats(), ys = y.Floats();
    const std::vector<float> olds = addend.Floats();
    StoredTensor result(addend.dtype(), addend.size());
    for (size_t i = 0; i < result.size(); ++i) {
      const float* old = with_addend ? &olds[i] : nullptr;
      result.Set(i, Element(static_cast<int64_t>(i), xs, ws, ys, old));
    }
    return result.Bytes();
  }

  float Element(int64_t i, const std::vector<float>& xs,
                const std::vector<float>& ws, const std::vector<float>& ys,
                const float* old) const {
    const auto at = [](const std::vector<float>& values, int64_t index) {
      return values[static_cast<size_t>(index)];
    };
    const int64_t in = shape.in, out = shape.out;
    switch (kernel) {
      case Kernel::kForward:
        return dot::DotProduct(
            in, [&](int64_t k) { return at(xs, i / out * in + k); },
            [&](int64_t k) { return at(ws, i % out * in + k); }, old);
      case Kernel::kGradInput:
        return dot::DotProduct(
            out, [&](int64_t k) { return at(ys, i / in * out + k); },
            [&](int64_t k) { return at(ws, k * in + i % in); }, old);
      case Kernel::kGradWeight:
        return dot::DotProduct(
            rows, [&](int64_t k) { return at(ys, k * out + i / in); },
            [&](int64_t k) { return at(xs, k * in + i % in); }, old);
    }
    return 0.0f;
  }

  Kernel kernel;
  LinearShape shape;
  int64_t rows;
  StoredTensor x, w, y, addend;
};

void ExpectSame(const std::vector<uint8_t>& got,
                const std::vector<uint8_t>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i], want[i]) << "byte " << i << " of " << got.size();
  }
}

void CheckCall(DotCall& call) {
  const std::vector<uint8_t> sums = call.Want(false);
  const std::vector<uint8_t> added = call.Want(true);
  ForEachDotForm([&] {
    for (const int threads : {1, 2, 3}) {
      SCOPED_TRACE(threads);
      const TestContext context(threads, call.workspace());
      StoredTensor got(call.addend.dtype(), call.addend.size());
      call.Run({got.tensor()}, *context);
      ExpectSame(got.Bytes(), sums);
      StoredTensor apart(call.addend.dtype(), call.addend.size());
      call.Run({.to = apart.tensor(), .addend = call.addend.tensor()},
               *context);
      ExpectSame(apart.Bytes(), added);
      got.CopyFrom(call.addend);
      call.Run({.to = got.tensor(), .addend = got.tensor()}, *context);
      ExpectSame(got.Bytes(), added);
    }
  });
}

void CheckKernel(Kernel kernel, DType to,
                 std::span<const DotCase> cases = kDotCases) {
  for (const DotCase& c : cases) {
    SCOPED_TRACE(::testing::Message() << "in=" << c.shape.in << " out="
                                      << c.shape.out << " rows=" << c.rows);
    DotCall call(kernel, c, to);
    CheckCall(call);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(DotProduct, ForwardIsTheSumOfPairsToTheBit) {
  CheckKernel(Kernel::kForward, kBF16);
}

TEST(DotProduct, GradientOfTheInputIsTheSumOfPairsToTheBit) {
  CheckKernel(Kernel::kGradInput, kBF16);
}

TEST(DotProduct, GradientOfTheWeightsIsTheSumOfPairsToTheBit) {
  CheckKernel(Kernel::kGradWeight, kBF16);
  CheckKernel(Kernel::kGradWeight, kF32);
}

TEST(DotProduct, LargeOnesAreTheSumOfPairsToTheBit) {
  CheckKernel(Kernel::kForward, kBF16, kLargeDotCases);
  CheckKernel(Kernel::kGradInput, kBF16, kLargeDotCases);
  CheckKernel(Kernel::kGradWeight, kBF16, kLargeDotCases);
  CheckKernel(Kernel::kGradWeight, kF32, kLargeDotCases);
}

// Two pairs, with one output. The second of a pair goes first: a 1 is lost
// beside 2^30 in one order and not in the other. Denormals, of terms and of
// sums, are zeros.
TEST(DotProduct, PairsHaveAnOrderAndDenormalsAreZeros) {
  const float big = 0x1p30f, tiny = 0x1p-130f, small = 0x1p-70f;
  const struct {
    float x[4], w[4], want;
  } sums[] = {
      {{big, 0, -big, 1}, {1, 1, 1, 1}, 0.0f},
      {{big, 0, 1, -big}, {1, 1, 1, 1}, 1.0f},
      {{tiny, 0, 0, 0}, {big, 0, 0, 0}, 0.0f},
      {{small, 0, 0, 0}, {small, 0, 0, 0}, 0.0f},
      {{small, 0, 0, 0}, {0x1p-56f, 0, 0, 0}, 0x1p-126f},
      {{0x1p-126f, 0, -0x1.8p-126f, 0}, {1, 0, 1, 0}, 0.0f},
  };
  const LinearShape shape = {4, 1};
  const LinearStorage storage = {kBF16, kBF16, kBF16};
  for (const auto& sum : sums) {
    StoredTensor x(kBF16, 4), w(kBF16, 4);
    for (size_t i = 0; i < 4; ++i) {
      x.Set(i, sum.x[i]);
      w.Set(i, sum.w[i]);
    }
    ForEachDotForm([&] {
      const TestContext context(1, LinearForwardWorkspace(shape, storage));
      StoredTensor got(kBF16, 1);
      LinearForward(shape, 1, x.tensor(), w.tensor(), {got.tensor()}, *context);
      EXPECT_EQ(got.Get(0), static_cast<double>(sum.want));
    });
  }
}

}  // namespace
}  // namespace thimble::kernels
