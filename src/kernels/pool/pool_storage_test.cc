// SPDX-License-Identifier: Apache-2.0
//
// Pooling on every storage type, of planes that are one strip and of planes
// that are several, in rows and in columns.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <vector>

#include "kernels/pool/pool.h"
#include "kernels/pool/reference.h"
#include "kernels/stored_tensor.h"
#include "kernels/testing.h"

namespace thimble::kernels {
namespace {

using testing::ForEachFloatType;
using testing::OverThreads;
using testing::StoredTensor;
using testing::SumErrorBound;

// Kernel, stride, padding: fast paths, overlap, gaps between windows, borders.
const std::tuple<int64_t, int64_t, int64_t> kStoredWindows[] = {
    {2, 2, 0}, {2, 2, 1}, {3, 2, 1}, {3, 1, 1},  {2, 3, 0},
    {1, 5, 0}, {5, 3, 2}, {4, 1, 2}, {16, 4, 8}, {16, 1, 8}};

// Height, width. The last ones are several strips.
const std::tuple<int64_t, int64_t> kStoredPlanes[] = {
    {1, 1}, {2, 3}, {7, 5}, {9, 33}, {61, 37}, {3, 2111}};

// Runs body(dtype, shape) for every target, type and shape, with the sizes of
// inputs and outputs.
constexpr int64_t kPoolImages = 1;
template <typename F>
void ForEachStoredShape(const F& body) {
  ForEachFloatType([&](DType dtype) {
    for (const auto& [kernel, stride, padding] : kStoredWindows) {
      for (const auto& [height, width] : kStoredPlanes) {
        if (std::min(width, height) + 2 * padding < kernel) continue;
        SCOPED_TRACE(::testing::Message()
                     << height << "x" << width << " kernel " << kernel
                     << " stride " << stride << " padding " << padding);
        const PoolShape shape{.channels = width < 30 ? 3 : 1,
                              .height = height,
                              .width = width,
                              .kernel = kernel,
                              .stride = stride,
                              .padding = padding};
        body(dtype, shape,
             static_cast<size_t>(reference::InputSize(shape, kPoolImages)),
             static_cast<size_t>(reference::OutputSize(shape, kPoolImages)));
      }
    }
  });
}

std::vector<double> MagnitudesOf(std::vector<double> values) {
  for (double& v : values) v = std::fabs(v);
  return values;
}

// Within one rounding of the type, past the sums' in f32: `size` are the sums
// of magnitudes.
void ExpectStoredSums(const StoredTensor& type, const std::vector<double>& got,
                      const std::vector<double>& want,
                      const std::vector<double>& size, int64_t terms) {
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_NEAR(got[i], want[i],
                type.RoundingBound(want[i]) + SumErrorBound(terms, size[i]))
        << i;
  }
}

TEST(PoolStorage, MaxAndItsGradTakeEveryType) {
  ForEachStoredShape([](DType dtype, const PoolShape& shape, size_t inputs,
                        size_t outputs) {
    StoredTensor x(dtype, inputs, 1), y(dtype, outputs, 99);
    StoredTensor grad_y(dtype, outputs, 2), grad_x(dtype, inputs, 99);
    // Ties.
    for (size_t i = 0; i < inputs; i += 3) x.Set(i, 0.5f);
    std::vector<double> want(outputs), want_grad(inputs), size(inputs);
    std::vector<uint8_t> want_winner(outputs), winner(outputs);
    reference::MaxPool(shape, kPoolImages, x.Wide().data(), want.data(),
                       want_winner.data());
    ASSERT_EQ(OverThreads(y,
                          [&](const Tensor& to, const KernelContext& context) {
                            winner.assign(outputs, 0xFF);
                            MaxPool(shape, kPoolImages, x.tensor(), to,
                                    winner.data(), context);
                          }),
              want);
    ASSERT_EQ(winner, want_winner);
    ASSERT_EQ(OverThreads(y,
                          [&](const Tensor& to, const KernelContext& context) {
                            MaxPool(shape, kPoolImages, x.tensor(), to, nullptr,
                                    context);
                          }),
              want);
    reference::MaxPoolGrad(shape, kPoolImages, winner.data(),
                           grad_y.Wide().data(), want_grad.data());
    reference::MaxPoolGrad(shape, kPoolImages, winner.data(),
                           MagnitudesOf(grad_y.Wide()).data(), size.data());
    const auto got = OverThreads(
        grad_x, [&](const Tensor& to, const KernelContext& context) {
          MaxPoolGrad(shape, kPoolImages, winner.data(), grad_y.tensor(), to,
                      context);
        });
    ExpectStoredSums(grad_x, got, want_grad, size, shape.kernel * shape.kernel);
  });
}

TEST(PoolStorage, AverageAndItsGradTakeEveryType) {
  ForEachStoredShape([](DType dtype, const PoolShape& shape, size_t inputs,
                        size_t outputs) {
    StoredTensor x(dtype, inputs, 1), y(dtype, outputs, 99);
    StoredTensor grad_y(dtype, outputs, 2), grad_x(dtype, inputs, 99);
    std::vector<double> want(outputs), size(outputs);
    std::vector<double> want_grad(inputs), size_grad(inputs);
    reference::AveragePool(shape, kPoolImages, x.Wide().data(), want.data());
    reference::AveragePool(shape, kPoolImages, MagnitudesOf(x.Wide()).data(),
                           size.data());
    reference::AveragePoolGrad(shape, kPoolImages, grad_y.Wide().data(),
                               want_grad.data());
    reference::AveragePoolGrad(shape, kPoolImages,
                               MagnitudesOf(grad_y.Wide()).data(),
                               size_grad.data());
    // The reciprocal of kernel² and its product round once each as well.
    const int64_t terms = shape.kernel * shape.kernel;
    ExpectStoredSums(
        y,
        OverThreads(y,
                    [&](const Tensor& to, const KernelContext& context) {
                      AveragePool(shape, kPoolImages, x.tensor(), to, context);
                    }),
        want, size, terms);
    ExpectStoredSums(
        grad_x,
        OverThreads(grad_x,
                    [&](const Tensor& to, const KernelContext& context) {
                      AveragePoolGrad(shape, kPoolImages, grad_y.tensor(), to,
                                      context);
                    }),
        want_grad, size_grad, terms);
  });
}

TEST(PoolStorage, GlobalAverageAndItsGradTakeEveryType) {
  ForEachFloatType([](DType dtype) {
    for (int64_t pixels : {1, 3, 8, 15, 33, 64, 1025, 5000}) {
      SCOPED_TRACE(pixels);
      constexpr int64_t kChannels = 5;
      const auto planes = static_cast<size_t>(kPoolImages * kChannels);
      const size_t all = planes * static_cast<size_t>(pixels);
      StoredTensor x(dtype, all, 1), y(dtype, planes, 99);
      StoredTensor grad_y(dtype, planes, 2), grad_x(dtype, all, 99);
      std::vector<double> want(planes), size(planes), want_grad(all);
      reference::GlobalAveragePool(kPoolImages, kChannels, pixels,
                                   x.Wide().data(), want.data());
      reference::GlobalAveragePool(kPoolImages, kChannels, pixels,
                                   MagnitudesOf(x.Wide()).data(), size.data());
      // A chain, what is left over after whole rounds of chains, the fold.
      const int64_t terms = std::min(pixels, kPoolPiece / kPoolChains) + 10;
      ExpectStoredSums(
          y,
          OverThreads(y,
                      [&](const Tensor& to, const KernelContext& context) {
                        GlobalAveragePool(kPoolImages, kChannels, pixels,
                                          x.tensor(), to, context);
                      }),
          want, size, terms);
      reference::GlobalAveragePoolGrad(kPoolImages, kChannels, pixels,
                                       grad_y.Wide().data(), want_grad.data());
      ExpectStoredSums(
          grad_x,
          OverThreads(grad_x,
                      [&](const Tensor& to, const KernelContext& context) {
                        GlobalAveragePoolGrad(kPoolImages, kChannels, pixels,
                                              grad_y.tensor(), to, context);
                      }),
          want_grad, MagnitudesOf(want_grad), 1);
    }
  });
}

}  // namespace
}  // namespace thimble::kernels
