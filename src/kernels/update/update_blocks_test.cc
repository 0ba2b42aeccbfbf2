// SPDX-License-Identifier: Apache-2.0
//
// Updates with state in blocks of bytes: the same as with f32 state of the same
// values, which is then encoded.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "base/rng.h"
#include "base/test_allocations.h"
#include "kernels/block_tensor.h"
#include "kernels/grad_sink/grad_sink.h"
#include "kernels/stored_tensor.h"
#include "kernels/testing.h"
#include "kernels/update/update.h"

namespace thimble::kernels {
namespace {

using testing::BlockTensor;
using testing::ForEachTarget;
using testing::StoredTensor;
using testing::TestContext;

constexpr RandomAddress kBlocksRandom = {11, 2, UpdateStream(3)};

constexpr size_t kLengths[] = {1, 63, 64, 65, 700, 20001};

TEST(UpdateBlocks, SgdKeepsItsVelocityInThem) {
  ForEachTarget([] {
    for (const size_t n : kLengths) {
      for (const int threads : {1, 2, 3}) {
        StoredTensor param(DType::kF32, n, 1), grad(DType::kBF16, n, 2);
        BlockTensor velocity(BlockCoding::kSigned, n);
        TestContext context(threads);
        SgdStep step{.momentum = 0.9f, .random = kBlocksRandom};
        for (int t = 0; t < 3; ++t, ++step.random.step) {
          StoredTensor same(DType::kF32, n, 1);
          for (size_t i = 0; i < n; ++i) {
            same.Set(i, static_cast<float>(param.Get(i)));
          }
          std::vector<float> values = velocity.Values();
          const auto count = static_cast<int64_t>(n);
          SgdUpdate(count, step, same.tensor(), grad.tensor(),
                    F32(values.data()), *context);
          SgdUpdate(count, step, param.tensor(), grad.tensor(),
                    velocity.tensor(), *context);
          ASSERT_EQ(param.Bytes(), same.Bytes());
          velocity.Expect(values, step.random.Next(1));
          if (::testing::Test::HasFailure()) return;
        }
      }
    }
  });
}

TEST(UpdateBlocks, AdamKeepsBothMomentsInThem) {
  ForEachTarget([] {
    for (const size_t n : kLengths) {
      for (const int threads : {1, 2, 3}) {
        StoredTensor param(DType::kF32, n, 1), grad(DType::kF16, n, 2);
        BlockTensor first(BlockCoding::kSigned, n);
        BlockTensor second(BlockCoding::kSquareRoot, n);
        TestContext context(threads);
        AdamStep step{.random = kBlocksRandom};
        for (; step.number <= 3; ++step.number, ++step.random.step) {
          StoredTensor same(DType::kF32, n, 1);
          for (size_t i = 0; i < n; ++i) {
            same.Set(i, static_cast<float>(param.Get(i)));
          }
          std::vector<float> m = first.Values(), v = second.Values();
          const auto count = static_cast<int64_t>(n);
          AdamUpdate(count, step, same.tensor(), grad.tensor(),
                     {F32(m.data()), F32(v.data())}, *context);
          AdamUpdate(count, step, param.tensor(), grad.tensor(),
                     {first.tensor(), second.tensor()}, *context);
          ASSERT_EQ(param.Bytes(), same.Bytes());
          first.Expect(m, step.random.Next(1));
          second.Expect(v, step.random.Next(2));
          if (::testing::Test::HasFailure()) return;
        }
      }
    }
  });
}

TEST(UpdateBlocks, AGradientInThemIsReadAsItsValues) {
  ForEachTarget([] {
    for (const size_t n : kLengths) {
      const auto count = static_cast<int64_t>(n);
      BlockTensor grad(BlockCoding::kSigned, n);
      std::vector<float> sums(n);
      for (size_t i = 0; i < n; ++i) sums[i] = testing::TestValue(7, i);
      StoredSink(grad.tensor(), ConstTensor::None(), kBlocksRandom)
          .Take(0, count, sums.data());
      std::vector<float> values = grad.Values();
      for (const int threads : {1, 3}) {
        const TestContext context(threads);
        StoredTensor param(DType::kF16, n, 1), same(DType::kF16, n, 1);
        std::vector<float> v(n, 0.5f), v_same(n, 0.5f);
        const SgdStep sgd{.momentum = 0.9f, .nesterov = true};
        SgdUpdate(count, sgd, param.tensor(), grad.tensor(), F32(v.data()),
                  *context);
        SgdUpdate(count, sgd, same.tensor(), F32(values.data()),
                  F32(v_same.data()), *context);
        EXPECT_EQ(param.Bytes(), same.Bytes());
        EXPECT_EQ(v, v_same);
        std::vector<float> m(n), m_same(n);
        AdamUpdate(count, {}, param.tensor(), grad.tensor(),
                   {F32(m.data()), F32(v.data())}, *context);
        AdamUpdate(count, {}, same.tensor(), F32(values.data()),
                   {F32(m_same.data()), F32(v_same.data())}, *context);
        EXPECT_EQ(param.Bytes(), same.Bytes());
        EXPECT_EQ(m, m_same);
        EXPECT_EQ(v, v_same);
      }
    }
  });
}

TEST(UpdateBlocks, NothingIsAllocated) {
  constexpr size_t kCount = 5000;
  StoredTensor param(DType::kBF16, kCount, 1), grad(DType::kF32, kCount, 2);
  BlockTensor velocity(BlockCoding::kSigned, kCount);
  TestContext context(2);
  const Tensor p = param.tensor(), g = grad.tensor();
  const int64_t before = AllocationCount();
  SgdUpdate(kCount, {.momentum = 0.9f}, p, g, velocity.tensor(), *context);
  EXPECT_EQ(AllocationCount(), before);
}

}  // namespace
}  // namespace thimble::kernels
