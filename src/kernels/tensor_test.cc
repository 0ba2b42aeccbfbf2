// SPDX-License-Identifier: Apache-2.0
#include "kernels/tensor.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <type_traits>

#include "kernels/conv/conv.h"
#include "kernels/matmul/matmul.h"

namespace thimble::kernels {
namespace {

// A tensor that is forgotten, or handed over without its type, does not
// compile: alone, and in the contracts' structs.
static_assert(!std::is_default_constructible_v<ConstTensor>);
static_assert(!std::is_default_constructible_v<Tensor>);
static_assert(!std::is_constructible_v<ConstTensor, const float*>);
static_assert(!std::is_constructible_v<Tensor, float*>);
static_assert(!std::is_constructible_v<Tensor, ConstTensor>);
static_assert(!std::is_default_constructible_v<Conv2dInput>);
static_assert(!std::is_default_constructible_v<Conv2dOutput>);
static_assert(!std::is_default_constructible_v<Conv2dGradInputTarget>);
static_assert(!std::is_default_constructible_v<Conv2dNormGradTarget>);
static_assert(!std::is_default_constructible_v<Conv2dGradWeightTarget>);
static_assert(!std::is_default_constructible_v<LinearTarget>);

TEST(Tensor, IsGivenOnlyAsTheTypeItIsStoredIn) {
  uint32_t data[2] = {};
  const Tensor f32(data, DType::kF32), u8(data, DType::kU8);
  const Tensor i32(data, DType::kI32), bits(data, DType::kBit);
  EXPECT_EQ(static_cast<void*>(f32.f32()), data);
  EXPECT_EQ(static_cast<void*>(u8.u8()), data);
  EXPECT_EQ(static_cast<void*>(i32.i32()), data);
  EXPECT_EQ(static_cast<void*>(bits.bits()), data);
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kU8}) {
    EXPECT_DEATH(Tensor(data, dtype).f32(), "check failed");
    EXPECT_DEATH(ConstTensor(data, dtype).f32(), "check failed");
  }
  EXPECT_DEATH(f32.u8(), "check failed");
  EXPECT_DEATH(u8.i32(), "check failed");
  EXPECT_DEATH(u8.bits(), "check failed");
}

TEST(Tensor, NoneIsNotThereAndStaysSo) {
  EXPECT_FALSE(Tensor::None().is_there());
  EXPECT_EQ(ConstTensor::None().f32(), nullptr);
  EXPECT_FALSE(ConstTensor::None().From(7).is_there());
  EXPECT_FALSE(Tensor(nullptr, DType::kF16).From(7).is_there());
  EXPECT_EQ(Tensor(nullptr, DType::kF16).From(7).dtype(), DType::kF16);
}

TEST(Tensor, FromCountsElementsOfItsType) {
  uint8_t data[64] = {};
  EXPECT_EQ(Tensor(data, DType::kF32).From(3).data(), data + 12);
  EXPECT_EQ(Tensor(data, DType::kBF16).From(3).data(), data + 6);
  EXPECT_EQ(ConstTensor(data, DType::kU8).From(3).data(), data + 3);
  EXPECT_EQ(ConstTensor(data, DType::kF16).From(3).dtype(), DType::kF16);
}

TEST(Tensor, InBlocksIsNotPlainBytes) {
  uint8_t data[256] = {};
  uint16_t scales[4] = {};
  const Tensor blocks(data, DType::kU8, scales);
  EXPECT_TRUE(blocks.is_in_blocks());
  EXPECT_FALSE(Tensor(data, DType::kU8).is_in_blocks());
  EXPECT_DEATH(blocks.u8(), "check failed");
  EXPECT_DEATH(ConstTensor(blocks).u8(), "check failed");
  EXPECT_EQ(blocks.From(128).data(), data + 128);
  EXPECT_EQ(blocks.From(128).scales(), scales + 2);
  EXPECT_EQ(ConstTensor(blocks).From(192).scales(), scales + 3);
  EXPECT_DEATH(blocks.From(63), "check failed");
  EXPECT_DEATH(ConstTensor(blocks).From(1), "check failed");
}

}  // namespace
}  // namespace thimble::kernels
