// SPDX-License-Identifier: Apache-2.0
//
// Softmax cross-entropy on every storage type, and the loss's scale.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/softmax/reference.h"
#include "kernels/softmax/softmax.h"
#include "kernels/softmax/test_rows.h"
#include "kernels/stored_tensor.h"
#include "kernels/testing.h"

namespace thimble::kernels {
namespace {

using testing::ForEachFloatType;
using testing::ForEachTarget;
using testing::GuardedBuffer;
using testing::kUnit;
using testing::LossBound;
using testing::OverThreads;
using testing::Rows;
using testing::StoredTensor;
using testing::TestContext;

// Of logits stored as `dtype`, in rows below and above the piece of a row.
void CheckStored(DType dtype, int64_t rows, int64_t classes, float spread) {
  SCOPED_TRACE(::testing::Message() << rows << "x" << classes);
  Rows data(rows, classes, spread, 0);
  StoredTensor logits(dtype, data.logits.size());
  data.StoreAs(logits);
  double want_loss = 0.0;
  int32_t want_correct = 0;
  reference::SoftmaxCrossEntropy(rows, classes, data.wide.data(),
                                 data.labels.data(), &want_loss, &want_correct);
  for (int threads : {1, 2, 3}) {
    TestContext context(threads, SoftmaxCrossEntropyWorkspace(rows));
    float loss = 0.0f;
    int32_t correct = 0;
    SoftmaxCrossEntropy(rows, classes, logits.tensor(), data.labels.data(),
                        &loss, &correct, *context);
    ASSERT_NEAR(loss, want_loss, LossBound(data, want_loss));
    ASSERT_EQ(correct, want_correct);
  }
  // The loss's scale brings small gradients into the range of f16.
  const float scale = 0.375f, loss_scale = 640.0f;
  const auto run = [&](const ConstTensor& from, const Tensor& to,
                       const KernelContext& context) {
    SoftmaxCrossEntropyGrad(rows, classes, from, data.labels.data(), scale,
                            loss_scale, to, context);
  };
  std::vector<double> want(logits.size());
  reference::SoftmaxCrossEntropyGrad<double>(rows, classes, data.wide.data(),
                                             data.labels.data(),
                                             scale * loss_scale, want.data());
  const std::vector<double> bounds = data.GradBounds(scale * loss_scale, want);
  StoredTensor grad(dtype, logits.size(), 2);
  const auto got =
      OverThreads(grad, [&](const Tensor& to, const KernelContext& context) {
        run(logits.tensor(), to, context);
      });
  for (size_t i = 0; i < got.size(); ++i) {
    // The product with the loss's scale rounds once more in f32.
    const double bound = bounds[i] + kUnit * std::fabs(want[i]);
    ASSERT_NEAR(got[i], want[i], bound + grad.RoundingBound(want[i])) << i;
  }
  ASSERT_EQ(OverThreads(logits,
                        [&](const Tensor& to, const KernelContext& context) {
                          run(to, to, context);
                        }),
            got);
}

TEST(SoftmaxStorage, TakesEveryStorageTypeAlsoInPlace) {
  ForEachFloatType([](DType dtype) {
    for (const auto& [rows, classes] : {std::tuple<int64_t, int64_t>{1, 1},
                                        {3, 2},
                                        {5, 7},
                                        {4, 10},
                                        {6, 17},
                                        {3, 33},
                                        {2, 511},
                                        {3, 513},
                                        {2, 1537}}) {
      for (float spread : {0.5f, 12.0f}) {
        CheckStored(dtype, rows, classes, spread);
      }
    }
  });
}

TEST(SoftmaxStorage, LossScaleIsTheLastProduct) {
  ForEachTarget([] {
    const Rows data(4, 37, 4.0f, 1);
    GuardedBuffer<float> plain(data.logits.size()), scaled(data.logits.size());
    const TestContext context(1);
    for (const auto& [loss_scale, grad] :
         {std::pair{1.0f, &plain}, {3.7f, &scaled}}) {
      SoftmaxCrossEntropyGrad(data.rows, data.classes, F32(data.logits.data()),
                              data.labels.data(), 0.1f, loss_scale,
                              F32(grad->data()), *context);
    }
    for (size_t i = 0; i < plain.size(); ++i) {
      ASSERT_EQ(scaled[i], plain[i] * 3.7f) << i;
    }
  });
}

// All bits but the sign: a NaN in each type.
void SetNan(StoredTensor& x, size_t i) {
  const uint32_t bits = x.dtype() == DType::kF32 ? 0x7FFFFFFF : 0x7FFF;
  const size_t bytes = BytesFor(x.dtype(), 1);
  std::memcpy(static_cast<uint8_t*>(x.data()) + i * bytes, &bits, bytes);
}

TEST(SoftmaxStorage, NanAndInfinityShowFromEveryPieceOfARow) {
  ForEachFloatType([](DType dtype) {
    constexpr size_t kClasses = 1100;
    for (size_t at : {size_t{0}, size_t{511}, size_t{700}, kClasses - 1}) {
      for (bool nan : {false, true}) {
        SCOPED_TRACE(::testing::Message() << at << (nan ? " NaN" : " inf"));
        StoredTensor logits(dtype, kClasses, 1);
        logits.Set(at, std::numeric_limits<float>::infinity());
        if (nan) SetNan(logits, at);
        const int32_t label = 3;
        const TestContext context(1, SoftmaxCrossEntropyWorkspace(1));
        float loss = 0.0f;
        int32_t correct = 1;
        SoftmaxCrossEntropy(1, kClasses, logits.tensor(), &label, &loss,
                            &correct, *context);
        EXPECT_TRUE(std::isnan(loss));
        EXPECT_EQ(correct, 0);
        SoftmaxCrossEntropyGrad(1, kClasses, logits.tensor(), &label, 1.0f,
                                1.0f, logits.tensor(), *context);
        for (double v : logits.Wide()) ASSERT_TRUE(std::isnan(v));
      }
    }
  });
}

}  // namespace
}  // namespace thimble::kernels
