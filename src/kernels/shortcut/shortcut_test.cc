// SPDX-License-Identifier: Apache-2.0
#include "kernels/shortcut/shortcut.h"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/guard_page.h"
#include "kernels/shortcut/reference.h"
#include "kernels/stored_tensor.h"
#include "kernels/testing.h"

namespace thimble::kernels {
namespace {

using testing::FillRandom;
using testing::ForEachTarget;
using testing::GuardedBuffer;
using testing::GuardPageBuffer;
using testing::OverThreads;
using testing::StoredTensor;
using testing::TestContext;

size_t Inputs(const ShortcutShape& s, int64_t images) {
  return static_cast<size_t>(images * s.in_channels * s.height * s.width);
}
size_t Outputs(const ShortcutShape& s, int64_t images) {
  return static_cast<size_t>(images * s.out_channels * s.out_height() *
                             s.out_width());
}

// Runs body(shape, images) for every target and stride, on planes of every
// width up to two pairs of the widest vectors and one more.
template <typename F>
void ForEachShape(const F& body) {
  ForEachTarget([&] {
    for (int64_t stride : {1, 2, 3, 5}) {
      for (int64_t width = 1; width <= 67; ++width) {
        const ShortcutShape shape{.in_channels = 1 + width % 3,
                                  .height = 1 + width % 7,
                                  .width = width,
                                  .out_channels = 1 + width % 4,
                                  .stride = stride};
        SCOPED_TRACE(::testing::Message()
                     << shape.height << "x" << width << " stride " << stride);
        body(shape, 1 + width % 2);
      }
    }
  });
}

TEST(Shortcut, ForwardAndGradMatchReferenceForAnyThreadCount) {
  ForEachShape([](const ShortcutShape& shape, int64_t images) {
    const auto misalign = static_cast<size_t>(shape.width % 4);
    GuardedBuffer<float> x(Inputs(shape, images), misalign);
    GuardedBuffer<float> grad_y(Outputs(shape, images), misalign);
    FillRandom(x.span(), 1);
    FillRandom(grad_y.span(), 2);
    std::vector<float> want(grad_y.size()), want_grad(x.size());
    reference::Shortcut(shape, images, x.data(), want.data());
    reference::ShortcutGrad(shape, images, grad_y.data(), want_grad.data());
    for (int threads : {1, 2, 3}) {
      GuardedBuffer<float> y(grad_y.size(), 3), grad_x(x.size(), 1);
      TestContext context(threads);
      Shortcut(shape, images, F32(x.data()), F32(y.data()), *context);
      ShortcutGrad(shape, images, F32(grad_y.data()), F32(grad_x.data()),
                   *context);
      for (size_t i = 0; i < y.size(); ++i) ASSERT_EQ(y[i], want[i]) << i;
      for (size_t i = 0; i < x.size(); ++i) {
        ASSERT_EQ(grad_x[i], want_grad[i]) << i;
      }
      y.CheckGuards("y");
      grad_x.CheckGuards("grad_x");
    }
  });
}

TEST(Shortcut, MovesValuesOfEveryStorageTypeAsTheyAre) {
  ForEachShape([](const ShortcutShape& shape, int64_t images) {
    if (shape.width > 34 && shape.width % 8 > 1) return;
    for (DType dtype : {DType::kF16, DType::kBF16}) {
      SCOPED_TRACE(DTypeName(dtype));
      StoredTensor x(dtype, Inputs(shape, images), 1);
      StoredTensor grad_y(dtype, Outputs(shape, images), 2);
      std::vector<double> want(grad_y.size()), want_grad(x.size());
      reference::Shortcut(shape, images, x.Wide().data(), want.data());
      reference::ShortcutGrad(shape, images, grad_y.Wide().data(),
                              want_grad.data());
      StoredTensor y(dtype, grad_y.size(), 3), grad_x(dtype, x.size(), 4);
      ASSERT_EQ(
          OverThreads(y,
                      [&](const Tensor& to, const KernelContext& context) {
                        Shortcut(shape, images, x.tensor(), to, context);
                      }),
          want);
      ASSERT_EQ(OverThreads(
                    grad_x,
                    [&](const Tensor& to, const KernelContext& context) {
                      ShortcutGrad(shape, images, grad_y.tensor(), to, context);
                    }),
                want_grad);
    }
  });
}

TEST(Shortcut, StaysInsideItsTensors) {
  ForEachShape([](const ShortcutShape& shape, int64_t images) {
    GuardPageBuffer<float> x(Inputs(shape, images)),
        grad_x(Inputs(shape, images));
    GuardPageBuffer<float> y(Outputs(shape, images));
    TestContext context(1);
    Shortcut(shape, images, F32(x.data()), F32(y.data()), *context);
    ShortcutGrad(shape, images, F32(y.data()), F32(grad_x.data()), *context);
  });
}

// The shortcut is linear: <w, S x> = <Sᵀ w, x>, here in integers, so exactly.
TEST(Shortcut, ReferenceGradIsTheTransposeOfTheReferenceForward) {
  const ShortcutShape shape{.in_channels = 2,
                            .height = 5,
                            .width = 7,
                            .out_channels = 4,
                            .stride = 2};
  std::vector<double> x(Inputs(shape, 2)), w(Outputs(shape, 2));
  std::vector<double> y(w.size()), grad(x.size());
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i % 11);
  for (size_t i = 0; i < w.size(); ++i) w[i] = static_cast<double>(i % 7);
  reference::Shortcut(shape, 2, x.data(), y.data());
  reference::ShortcutGrad(shape, 2, w.data(), grad.data());
  double forward = 0.0;
  double backward = 0.0;
  for (size_t i = 0; i < w.size(); ++i) forward += w[i] * y[i];
  for (size_t i = 0; i < x.size(); ++i) backward += grad[i] * x[i];
  EXPECT_GT(forward, 0.0);
  EXPECT_EQ(forward, backward);
}

}  // namespace
}  // namespace thimble::kernels
