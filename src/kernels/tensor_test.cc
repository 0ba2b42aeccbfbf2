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

// Every type that a kernel may ask for is given where the tensor is stored so,
// and no other one is.
TEST(Tensor, AsGivesNoOtherElementType) {
  uint32_t data[2] = {};
  const auto expect = [&data](auto type, DType stored) {
    using T = decltype(type);
    const Tensor tensor(data, stored);
    if (kDTypeOf<T> == stored) {
      EXPECT_EQ(static_cast<void*>(tensor.As<T>()), data);
      EXPECT_EQ(static_cast<const void*>(ConstTensor(tensor).As<T>()), data);
    } else {
      EXPECT_DEATH(tensor.As<T>(), "check failed");
      EXPECT_DEATH(ConstTensor(tensor).As<T>(), "check failed");
    }
  };
  for (const DType stored : {DType::kF32, DType::kF16, DType::kBF16, DType::kU8,
                             DType::kI32, DType::kBit}) {
    SCOPED_TRACE(DTypeName(stored));
    expect(float(), stored);
    expect(F16(), stored);
    expect(BF16(), stored);
    expect(uint8_t(), stored);
    expect(int32_t(), stored);
  }
}

TEST(Tensor, HalvesAreThoseOfTheTypeThatIsNamed) {
  uint16_t data[4] = {};
  const Tensor f16(data, DType::kF16), bf16(data, DType::kBF16);
  EXPECT_EQ(f16.halves(DType::kF16), data);
  EXPECT_EQ(ConstTensor(bf16).halves(DType::kBF16), data);
  EXPECT_DEATH(f16.halves(DType::kBF16), "check failed");
  EXPECT_DEATH(ConstTensor(bf16).halves(DType::kF16), "check failed");
  EXPECT_DEATH(Tensor(data, DType::kU8).halves(DType::kU8), "check failed");
}

TEST(Tensor, NoneIsNotThereAndStaysSo) {
  EXPECT_FALSE(Tensor::None().is_there());
  EXPECT_EQ(ConstTensor::None().f32(), nullptr);
  EXPECT_EQ(Tensor::None().As<BF16>(), nullptr);
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
  EXPECT_DEATH(blocks.As<uint8_t>(), "check failed");
  EXPECT_EQ(blocks.codes(), data);
  EXPECT_EQ(ConstTensor(blocks).codes(), data);
  EXPECT_DEATH(Tensor(data, DType::kU8).codes(), "check failed");
  EXPECT_EQ(blocks.From(128).data(), data + 128);
  EXPECT_EQ(blocks.From(128).scales(), scales + 2);
  EXPECT_EQ(ConstTensor(blocks).From(192).scales(), scales + 3);
  EXPECT_DEATH(blocks.From(63), "check failed");
  EXPECT_DEATH(ConstTensor(blocks).From(1), "check failed");
}

TEST(WithStorageType, TakesFloatsAndPlainBytesButNoBlocks) {
  uint32_t data[2] = {};
  uint16_t scale = 0;
  const auto seen = [](const Tensor& tensor) {
    DType dtype = DType::kBit;
    WithStorageType(tensor,
                    [&dtype](auto type) { dtype = kDTypeOf<decltype(type)>; });
    return dtype;
  };
  for (const DType dtype :
       {DType::kF32, DType::kF16, DType::kBF16, DType::kU8}) {
    EXPECT_EQ(seen(Tensor(data, dtype)), dtype);
  }
  EXPECT_DEATH(seen(Tensor(data, DType::kU8, &scale)), "check failed");
  EXPECT_DEATH(seen(Tensor(data, DType::kI32)), "check failed");
}

}  // namespace
}  // namespace thimble::kernels
