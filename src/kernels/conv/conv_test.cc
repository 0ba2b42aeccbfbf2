// SPDX-License-Identifier: Apache-2.0
#include "kernels/conv/conv.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <memory>
#include <ostream>
#include <utility>
#include <vector>

#include "kernels/conv/reference.h"
#include "kernels/conv/test_input.h"
#include "kernels/testing.h"

namespace thimble::kernels {
namespace {

using testing::FillRandom;
using testing::ForEachTarget;
using testing::GuardedBuffer;
using testing::Input;
using testing::InputSize;
using testing::OutputSize;
using testing::SumErrorBound;
using testing::TestContext;
using testing::TestValue;
using testing::WeightSize;

struct Case {
  Conv2dShape shape;
  int64_t images = 1;
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  const Conv2dShape& s = c.shape;
  return out << c.images << " images " << s.in_channels << "x" << s.in_height
             << "x" << s.in_width << " -> " << s.out_channels << ", kernel "
             << s.kernel_h << "x" << s.kernel_w << " stride " << s.stride
             << " padding " << s.padding;
}

// {in channels, height, width, out channels, kernel h, kernel w, stride,
// padding}, images. Around the widths of vectors and register tiles of every
// target; rows shorter and longer than a vector; several tiles per image and
// several chunks of channels; paddings past the kernel's reach; the last ones
// are Winograd's, in strips of one image and of several.
const Case kCases[] = {
    {{1, 1, 1, 1, 1, 1, 1, 0}, 1},     {{1, 1, 1, 1, 3, 3, 1, 1}, 2},
    {{3, 5, 9, 5, 3, 3, 1, 1}, 2},     {{5, 5, 9, 3, 3, 3, 2, 1}, 2},
    {{3, 9, 5, 4, 3, 3, 3, 1}, 1},     {{8, 7, 7, 9, 3, 3, 1, 1}, 3},
    {{17, 7, 7, 17, 3, 3, 2, 1}, 2},   {{3, 28, 28, 8, 5, 5, 1, 2}, 1},
    {{1, 28, 28, 6, 5, 5, 1, 0}, 2},   {{8, 14, 14, 33, 3, 3, 1, 1}, 2},
    {{5, 14, 14, 16, 3, 3, 2, 1}, 2},  {{17, 1, 14, 5, 1, 1, 1, 0}, 2},
    {{17, 14, 1, 5, 3, 1, 1, 1}, 2},   {{5, 1, 7, 8, 3, 3, 1, 1}, 2},
    {{3, 7, 1, 2, 3, 3, 2, 1}, 2},     {{8, 8, 8, 7, 2, 2, 2, 0}, 3},
    {{8, 9, 7, 7, 2, 2, 1, 1}, 2},     {{5, 8, 8, 12, 1, 1, 2, 0}, 2},
    {{17, 7, 9, 8, 1, 1, 3, 0}, 2},    {{3, 6, 11, 4, 3, 1, 1, 0}, 2},
    {{3, 11, 6, 4, 3, 1, 2, 1}, 2},    {{2, 6, 6, 3, 1, 1, 1, 1}, 2},
    {{2, 7, 8, 3, 1, 1, 2, 2}, 2},     {{2, 7, 7, 3, 5, 5, 3, 2}, 2},
    {{3, 17, 33, 5, 3, 3, 1, 1}, 1},   {{3, 33, 34, 5, 3, 3, 2, 1}, 1},
    {{40, 16, 16, 12, 3, 3, 1, 1}, 1}, {{32, 32, 32, 8, 3, 3, 1, 1}, 1},
    {{12, 32, 32, 24, 3, 3, 2, 1}, 1}, {{64, 16, 16, 10, 1, 1, 1, 0}, 1},
    {{48, 8, 8, 40, 3, 3, 1, 1}, 1},   {{1, 70, 300, 3, 3, 3, 1, 1}, 1},
    {{16, 6, 32, 24, 3, 3, 1, 1}, 2},  {{72, 8, 16, 40, 3, 3, 1, 1}, 2},
    {{24, 16, 8, 16, 3, 3, 1, 1}, 3},  {{136, 8, 8, 48, 3, 3, 1, 1}, 2},
};

// More of them, of sizes that nobody chose.
std::vector<Case> AllCases() {
  std::vector<Case> cases(std::begin(kCases), std::end(kCases));
  for (uint64_t seed = 0; cases.size() < std::size(kCases) + 80; ++seed) {
    const auto pick = [&](uint64_t i, int64_t low, int64_t high) {
      const double unit = 0.5 * (TestValue(seed + 100, i) + 1.0);
      return low +
             static_cast<int64_t>(unit * static_cast<double>(high + 1 - low));
    };
    Conv2dShape s = {pick(0, 1, 20), pick(1, 1, 20), pick(2, 1, 40),
                     pick(3, 1, 20), pick(4, 1, 5),  pick(5, 1, 5),
                     pick(6, 1, 4),  pick(7, 0, 3)};
    if (s.in_height + 2 * s.padding < s.kernel_h) continue;
    if (s.in_width + 2 * s.padding < s.kernel_w) continue;
    cases.push_back({s, pick(8, 1, 2)});
  }
  return cases;
}

// One pass: a kernel and its definition, from two inputs to one output.
struct PassUnderTest {
  Workspace (*workspace)(const Conv2dShape&);
  void (*kernel)(const Conv2dShape&, int64_t, const ConstTensor&,
                 const ConstTensor&, const Tensor&, const KernelContext&);
  void (*definition)(const Conv2dShape&, int64_t, const double*, const double*,
                     double*);
};
const PassUnderTest kForward = {
    [](const Conv2dShape& s) { return Conv2dForwardWorkspace(s); },
    [](const Conv2dShape& s, int64_t images, const ConstTensor& x,
       const ConstTensor& w, const Tensor& y, const KernelContext& context) {
      Conv2dForward(s, images, {x}, w, {y}, context);
    },
    reference::Conv2dForward<double>};
const PassUnderTest kGradInput = {
    [](const Conv2dShape& s) { return Conv2dGradInputWorkspace(s); },
    [](const Conv2dShape& s, int64_t images, const ConstTensor& grad_y,
       const ConstTensor& w, const Tensor& grad_x,
       const KernelContext& context) {
      Conv2dGradInput(s, images, grad_y, w, {grad_x}, context);
    },
    reference::Conv2dGradInput<double>};
const PassUnderTest kGradWeight = {
    Conv2dGradWeightWorkspace,
    [](const Conv2dShape& s, int64_t images, const ConstTensor& x,
       const ConstTensor& grad_y, const Tensor& grad_w,
       const KernelContext& context) {
      Conv2dGradWeight(s, images, {x}, grad_y, {grad_w}, context);
    },
    reference::Conv2dGradWeight<double>};

std::vector<float> Bits(const GuardedBuffer<float>& values) {
  return {values.data(), values.data() + values.size()};
}

// Runs one case on every target with 1, 2 and 3 threads. `terms` is the largest
// number of products in an element of the output, which has `size` elements.
void CheckCase(const PassUnderTest& pass, const Case& c, const Input& a,
               const Input& b, size_t size, int64_t terms) {
  SCOPED_TRACE(::testing::Message() << c);
  std::vector<double> want(size), magnitudes(size);
  pass.definition(c.shape, c.images, a.Wide().data(), b.Wide().data(),
                  want.data());
  pass.definition(c.shape, c.images, a.Magnitudes().data(),
                  b.Magnitudes().data(), magnitudes.data());
  ForEachTarget([&] {
    std::vector<float> first;
    for (int threads : {1, 2, 3}) {
      const TestContext context(threads, pass.workspace(c.shape));
      GuardedBuffer<float> got(size, static_cast<size_t>(threads));
      pass.kernel(c.shape, c.images, F32(a.data()), F32(b.data()),
                  F32(got.data()), *context);
      got.CheckGuards("output");
      for (size_t i = 0; i < size; ++i) {
        ASSERT_NEAR(got[i], want[i], SumErrorBound(terms, magnitudes[i]))
            << "element " << i << " threads=" << threads;
      }
      if (threads == 1) first = Bits(got);
      ASSERT_EQ(Bits(got), first) << "threads=" << threads;
    }
  });
}

TEST(Conv, ForwardMatchesReferenceForAnyThreadCount) {
  for (const Case& c : AllCases()) {
    const Conv2dShape& s = c.shape;
    const auto images = static_cast<size_t>(c.images);
    CheckCase(kForward, c, Input(images * InputSize(s), 1, 1),
              Input(WeightSize(s), 3, 2), images * OutputSize(s),
              s.in_channels * s.kernel_h * s.kernel_w);
    if (HasFatalFailure()) return;
  }
}

TEST(Conv, GradInputMatchesReferenceForAnyThreadCount) {
  for (const Case& c : AllCases()) {
    const Conv2dShape& s = c.shape;
    const auto images = static_cast<size_t>(c.images);
    CheckCase(kGradInput, c, Input(images * OutputSize(s), 1, 3),
              Input(WeightSize(s), 3, 2), images * InputSize(s),
              s.out_channels * s.kernel_h * s.kernel_w);
    if (HasFatalFailure()) return;
  }
}

TEST(Conv, GradWeightMatchesReferenceForAnyThreadCount) {
  for (const Case& c : AllCases()) {
    const Conv2dShape& s = c.shape;
    const auto images = static_cast<size_t>(c.images);
    CheckCase(kGradWeight, c, Input(images * InputSize(s), 1, 1),
              Input(images * OutputSize(s), 3, 3), WeightSize(s),
              c.images * s.out_height() * s.out_width());
    if (HasFatalFailure()) return;
  }
}

TEST(Conv, ImageDoesNotDependOnTheImagesBesideIt) {
  ForEachTarget([] {
    for (int64_t stride : {1, 2}) {
      const Conv2dShape s = {7, 9, 11, 13, 3, 3, stride, 1};
      constexpr size_t kImages = 4;
      const size_t in = InputSize(s), out = OutputSize(s);
      const Input x(kImages * in, 1, 1), grad_y(kImages * out, 1, 2);
      const Input w(WeightSize(s), 1, 3);
      const TestContext forward(3, Conv2dForwardWorkspace(s));
      const TestContext backward(3, Conv2dGradInputWorkspace(s));
      GuardedBuffer<float> y(kImages * out), grad_x(kImages * in);
      Conv2dForward(s, kImages, {F32(x.data())}, F32(w.data()), {F32(y.data())},
                    *forward);
      Conv2dGradInput(s, kImages, F32(grad_y.data()), F32(w.data()),
                      {F32(grad_x.data())}, *backward);
      for (size_t i = 0; i < kImages; ++i) {
        GuardedBuffer<float> one(out), grad(in);
        Conv2dForward(s, 1, {F32(x.data() + i * in)}, F32(w.data()),
                      {F32(one.data())}, *forward);
        Conv2dGradInput(s, 1, F32(grad_y.data() + i * out), F32(w.data()),
                        {F32(grad.data())}, *backward);
        const float* at = y.data() + i * out;
        ASSERT_EQ(Bits(one), std::vector<float>(at, at + out));
        at = grad_x.data() + i * in;
        ASSERT_EQ(Bits(grad), std::vector<float>(at, at + in));
      }
    }
  });
}

TEST(Conv, NoImagesWriteNothingButZeroWeightGradients) {
  ForEachTarget([] {
    const Conv2dShape s = {5, 7, 7, 6, 3, 3, 1, 1};
    GuardedBuffer<float> none(0), w(WeightSize(s)), grad_w(WeightSize(s), 1);
    FillRandom(w.span(), 1);
    FillRandom(grad_w.span(), 2);
    const TestContext forward(2, Conv2dForwardWorkspace(s));
    const TestContext backward(2, Conv2dGradInputWorkspace(s));
    const TestContext weight(2, Conv2dGradWeightWorkspace(s));
    Conv2dForward(s, 0, {F32(none.data())}, F32(w.data()), {F32(none.data())},
                  *forward);
    Conv2dGradInput(s, 0, F32(none.data()), F32(w.data()), {F32(none.data())},
                    *backward);
    none.CheckGuards("none");
    Conv2dGradWeight(s, 0, {F32(none.data())}, F32(none.data()),
                     {F32(grad_w.data())}, *weight);
    grad_w.CheckGuards("grad_w");
    for (size_t i = 0; i < grad_w.size(); ++i) ASSERT_EQ(grad_w[i], 0.0f);
  });
}

// Scratch that ends where its allocation ends, and output that does, for
// AddressSanitizer.
TEST(Conv, StaysInsideItsAllocations) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(::testing::Message() << c);
    const Conv2dShape& s = c.shape;
    const auto images = static_cast<size_t>(c.images);
    const Input x(images * InputSize(s), 0, 1);
    const Input grad_y(images * OutputSize(s), 0, 2);
    const Input w(WeightSize(s), 0, 3);
    const auto run = [&](const PassUnderTest& pass, const Input& a,
                         const Input& b, size_t size) {
      ForEachTarget([&] {
        KernelContext context;
        const auto pool = std::move(*ThreadPool::Create(1));
        context.pool = pool.get();
        context.workspace = pass.workspace(s);
        const size_t bytes = TotalBytes(context.workspace, 1);
        const std::unique_ptr<void, decltype(&std::free)> scratch(
            std::aligned_alloc(kAlignment, bytes), &std::free);
        context.scratch = static_cast<std::byte*>(scratch.get());
        std::vector<float> got(size);
        pass.kernel(s, c.images, F32(a.data()), F32(b.data()), F32(got.data()),
                    context);
        for (float value : got) ASSERT_TRUE(std::isfinite(value));
      });
    };
    run(kForward, x, w, images * OutputSize(s));
    run(kGradInput, grad_y, w, images * InputSize(s));
    run(kGradWeight, x, grad_y, WeightSize(s));
  }
}

// The root mean square of f32 errors, of each pass, on one target.
struct PassErrors {
  double forward = 0.0, grad_input = 0.0, grad_weight = 0.0;
};
PassErrors ErrorsOf(const Conv2dShape& s, int64_t images) {
  const auto n = static_cast<size_t>(images);
  const Input x(n * InputSize(s), 0, 1), grad_y(n * OutputSize(s), 0, 2);
  const Input w(WeightSize(s), 0, 3);
  const auto error = [&](const PassUnderTest& pass, const Input& a,
                         const Input& b, const std::vector<double>& want) {
    const TestContext context(1, pass.workspace(s));
    std::vector<float> got(want.size());
    pass.kernel(s, images, F32(a.data()), F32(b.data()), F32(got.data()),
                *context);
    double square = 0.0;
    for (size_t i = 0; i < got.size(); ++i) {
      square += (got[i] - want[i]) * (got[i] - want[i]);
    }
    return std::sqrt(square / static_cast<double>(got.size()));
  };
  std::vector<double> y(grad_y.Wide().size()), grad_x(x.Wide().size()),
      grad_w(w.Wide().size());
  reference::Conv2dForward(s, images, x.Wide().data(), w.Wide().data(),
                           y.data());
  reference::Conv2dGradInput(s, images, grad_y.Wide().data(), w.Wide().data(),
                             grad_x.data());
  reference::Conv2dGradWeight(s, images, x.Wide().data(), grad_y.Wide().data(),
                              grad_w.data());
  return {error(kForward, x, w, y), error(kGradInput, grad_y, w, grad_x),
          error(kGradWeight, x, grad_y, grad_w)};
}

// The first target, which has the fewest lanes, sums directly.
TEST(Conv, WinogradIsAboutAsAccurateAsDirectSums) {
  const Conv2dShape s = {64, 8, 16, 64, 3, 3, 1, 1};
  std::vector<PassErrors> errors;
  ForEachTarget([&] { errors.push_back(ErrorsOf(s, 2)); });
  for (const PassErrors& e : errors) {
    EXPECT_LE(e.forward, 2 * errors.front().forward);
    EXPECT_LE(e.grad_input, 2 * errors.front().grad_input);
    EXPECT_LE(e.grad_weight, 2 * errors.front().grad_weight);
  }
}

TEST(Conv, WorkspaceStaysBelowItsBoundForUsualLayers) {
  constexpr size_t kBound = 128 * 1024;
  for (const Conv2dShape& s : {Conv2dShape{32, 32, 32, 32, 3, 3, 1, 1},
                               {64, 16, 16, 64, 3, 3, 1, 1},
                               {128, 8, 8, 128, 3, 3, 1, 1},
                               {32, 32, 32, 64, 3, 3, 2, 1},
                               {64, 16, 16, 128, 3, 3, 2, 1},
                               {64, 28, 28, 64, 3, 3, 1, 1},
                               {128, 14, 14, 128, 3, 3, 1, 1},
                               {128, 7, 7, 128, 3, 3, 1, 1},
                               {128, 32, 32, 128, 1, 1, 1, 0},
                               {3, 224, 224, 64, 7, 7, 2, 3},
                               {1, 224, 224, 8, 3, 3, 1, 1}}) {
    EXPECT_LE(Conv2dForwardWorkspace(s).per_thread, kBound);
    // Images (three channels) need no gradient.
    if (s.in_channels != 3) {
      EXPECT_LE(Conv2dGradInputWorkspace(s).per_thread, kBound);
    }
    EXPECT_LE(Conv2dGradWeightWorkspace(s).per_thread, kBound);
  }
}

}  // namespace
}  // namespace thimble::kernels
