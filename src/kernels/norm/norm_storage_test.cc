// SPDX-License-Identifier: Apache-2.0
//
// Batch norm of tensors that are stored in 16 bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/norm/norm.h"
#include "kernels/norm/reference.h"
#include "kernels/norm/test_batch.h"
#include "kernels/storage_reference.h"
#include "kernels/stored_tensor.h"
#include "kernels/testing.h"

namespace thimble::kernels {
namespace {

using testing::AppliedCase;
using testing::Batch;
using testing::Bits;
using testing::Doubles;
using testing::ForEachTarget;
using testing::GradCase;
using testing::GuardedBuffer;
using testing::kEpsilon;
using testing::StatisticsBounds;
using testing::StoredTensor;
using testing::TestContext;
using testing::Wide;

struct StoredShape {
  BatchNormShape shape;
  int64_t images;
};

// Planes and rows around the width of a vector on every target, of several
// pieces (1024 pixels), and of channels that go together (16).
const StoredShape kStoredShapes[] = {
    {{1, 1}, 1},   {{3, 1}, 7},   {{9, 1}, 5},    {{17, 1}, 4},  {{70, 1}, 9},
    {{3, 2}, 2},   {{5, 7}, 3},   {{3, 8}, 2},    {{2, 15}, 2},  {{3, 17}, 3},
    {{19, 49}, 2}, {{2, 255}, 2}, {{2, 1024}, 1}, {{1, 1100}, 2}};

// x and the gradient, stored, and a batch of the same values in f32.
struct StoredBatch {
  StoredBatch(const StoredShape& of, DType dtype)
      : batch(of.shape, of.images, 1),
        x(dtype, batch.size),
        grad_y(dtype, batch.size) {
    for (size_t i = 0; i < batch.size; ++i) {
      x.Set(i, batch.x[i]);
      grad_y.Set(i, batch.grad_y[i]);
      batch.x[i] = static_cast<float>(x.Get(i));
      batch.grad_y[i] = static_cast<float>(grad_y.Get(i));
    }
  }
  StoredTensor Empty() const { return StoredTensor(x.dtype(), batch.size); }
  Batch batch;
  StoredTensor x, grad_y;
};

void Copy(StoredTensor& from, StoredTensor& to) {
  std::ranges::copy(from.Bytes(), static_cast<uint8_t*>(to.data()));
}

// That `got` is within the bound of f32 and one rounding of `want`, and that it
// is exactly the rounding of what the kernel makes of the same values in f32.
void ExpectRounded(StoredTensor& got, const GuardedBuffer<float>& f32,
                   const Doubles& want, const Doubles& bound) {
  const reference::Format format = got.dtype() == DType::kF16
                                       ? reference::kF16Format
                                       : reference::kBF16Format;
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_NEAR(got.Get(i), want[i],
                bound[i] + got.RoundingBound(std::fabs(want[i]) + bound[i]))
        << i;
    ASSERT_EQ(got.Get(i), reference::Rounded(format, f32[i])) << i;
  }
}

template <typename F>
void ForEachStoredBatch(const F& body) {
  for (const StoredShape& shape : kStoredShapes) {
    for (const DType dtype : {DType::kF16, DType::kBF16}) {
      SCOPED_TRACE(::testing::Message()
                   << shape.images << "x" << shape.shape.channels << "x"
                   << shape.shape.pixels << " " << DTypeName(dtype));
      StoredBatch stored(shape, dtype);
      ForEachTarget([&] { body(stored); });
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

void CheckTrain(StoredBatch& stored) {
  const Batch& batch = stored.batch;
  const BatchNormShape& shape = batch.shape;
  Doubles want_mean(batch.channels), want_variance(batch.channels);
  reference::BatchNormStatistics(shape, batch.images, stored.x.Wide().data(),
                                 want_mean.data(), want_variance.data());
  const StatisticsBounds bounds(batch, want_mean, want_variance);
  for (int threads : {1, 2, 3}) {
    const TestContext context(threads);
    GuardedBuffer<float> mean(batch.channels, 1), variance(batch.channels, 3);
    GuardedBuffer<float> m(batch.channels), v(batch.channels), f32(batch.size);
    StoredTensor y = stored.Empty(), applied = stored.Empty();
    StoredTensor in_place = stored.Empty();
    Copy(stored.x, in_place);
    const auto train = [&](const Tensor& x, const Tensor& to) {
      BatchNormTrain(shape, batch.images, kEpsilon, x, batch.gamma.data(),
                     batch.beta.data(), to, mean.data(), variance.data(),
                     *context);
    };
    train(stored.x.tensor(), y.tensor());
    for (size_t c = 0; c < batch.channels; ++c) {
      ASSERT_NEAR(mean[c], want_mean[c], bounds.mean[c]) << c;
      ASSERT_NEAR(variance[c], want_variance[c], bounds.variance[c]) << c;
    }
    BatchNormTrain(shape, batch.images, kEpsilon, F32(batch.x.data()),
                   batch.gamma.data(), batch.beta.data(), F32(f32.data()),
                   m.data(), v.data(), *context);
    ASSERT_EQ(Bits(mean), Bits(m));
    ASSERT_EQ(Bits(variance), Bits(v));
    const AppliedCase want(batch, mean, variance);
    ExpectRounded(y, f32, want.y, want.bound);
    BatchNormApply(shape, batch.images, kEpsilon, stored.x.tensor(),
                   batch.gamma.data(), batch.beta.data(), mean.data(),
                   variance.data(), applied.tensor(), *context);
    ASSERT_EQ(applied.Bytes(), y.Bytes());
    train(in_place.tensor(), in_place.tensor());
    ASSERT_EQ(in_place.Bytes(), y.Bytes());
    mean.CheckGuards("mean");
    variance.CheckGuards("variance");
  }
}

TEST(BatchNormStorage, TrainAndApplyRoundOnceForAnyThreadCountAlsoInPlace) {
  ForEachStoredBatch(CheckTrain);
}

void CheckGrad(StoredBatch& stored) {
  const Batch& batch = stored.batch;
  const GradCase want(batch);
  for (int threads : {1, 2, 3}) {
    const TestContext context(threads);
    GuardedBuffer<float> gamma(batch.channels, 1), beta(batch.channels, 3);
    const auto run = [&](const ConstTensor& x, const ConstTensor& grad_y,
                         const Tensor& to) {
      BatchNormGrad(batch.shape, batch.images, kEpsilon, x, batch.gamma.data(),
                    want.mean.data(), want.variance.data(), grad_y, to,
                    gamma.data(), beta.data(), *context);
    };
    GuardedBuffer<float> f32(batch.size);
    run(F32(batch.x.data()), F32(batch.grad_y.data()), F32(f32.data()));
    const auto f32_gamma = Bits(gamma), f32_beta = Bits(beta);
    StoredTensor grad_x = stored.Empty(), on_x = stored.Empty();
    StoredTensor on_grad = stored.Empty();
    Copy(stored.x, on_x);
    Copy(stored.grad_y, on_grad);
    run(stored.x.tensor(), stored.grad_y.tensor(), grad_x.tensor());
    ExpectRounded(grad_x, f32, want.x, want.bound_x);
    ASSERT_EQ(Bits(gamma), f32_gamma);
    ASSERT_EQ(Bits(beta), f32_beta);
    for (size_t c = 0; c < batch.channels; ++c) {
      ASSERT_NEAR(gamma[c], want.gamma[c], want.bound_gamma[c]) << c;
      ASSERT_NEAR(beta[c], want.beta[c], want.bound_beta[c]) << c;
    }
    run(on_x.tensor(), stored.grad_y.tensor(), on_x.tensor());
    ASSERT_EQ(on_x.Bytes(), grad_x.Bytes());
    run(stored.x.tensor(), on_grad.tensor(), on_grad.tensor());
    ASSERT_EQ(on_grad.Bytes(), grad_x.Bytes());
    run(stored.x.tensor(), stored.grad_y.tensor(), Tensor::None());
    ASSERT_EQ(Bits(gamma), f32_gamma);
    gamma.CheckGuards("gamma");
    beta.CheckGuards("beta");
  }
}

TEST(BatchNormStorage, GradRoundsOnceForAnyThreadCountAlsoInPlace) {
  ForEachStoredBatch(CheckGrad);
}

}  // namespace
}  // namespace thimble::kernels
