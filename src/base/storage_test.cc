// SPDX-License-Identifier: Apache-2.0
#include "thimble/storage.h"

#include <gtest/gtest.h>

namespace thimble {
namespace {

TEST(Storage, OfADTypeIsOneElementAfterTheOther) {
  EXPECT_EQ(Storage(DType::kF32).Bytes(100), 400u);
  EXPECT_EQ(Storage(DType::kBF16).Bytes(100), 200u);
  EXPECT_EQ(Storage(DType::kBit).Bytes(9), 2u);
  EXPECT_EQ(Storage(DType::kF16).Kept(100), 100);
  EXPECT_EQ(Storage(DType::kF16).ToString(), "f16");
}

TEST(Storage, InBlocksHasAScaleForEachBlockTheLastPartialOneIncluded) {
  Storage storage = DType::kU8;
  storage.blocks = ValueBlocks{.values = 64, .scale = DType::kF16};
  // 129 bytes, rounded up to 136, and three scales.
  EXPECT_EQ(storage.Bytes(129), 136u + 6u);
  EXPECT_EQ(storage.Bytes(128), 128u + 4u);
  EXPECT_EQ(storage.ScalesOffset(129), 136u);
  EXPECT_EQ(storage.ScalesOffset(128), 128u);
  EXPECT_EQ(storage.Kept(129), 129);
  EXPECT_EQ(storage.ToString(), "u8 in blocks of 64");
}

TEST(Storage, ThatIsSparseKeepsValuesOnly) {
  Storage storage = DType::kF16;
  storage.sparsity = Sparsity{.kept = 1000, .block = {}, .member = 0};
  EXPECT_EQ(storage.Kept(4608), 1000);
  EXPECT_EQ(storage.Bytes(4608), 2000u);
  EXPECT_EQ(storage.ToString(), "f16, sparse");
  storage.sparsity->block = {.outputs = 2, .inputs = 2};
  EXPECT_EQ(storage.Kept(4608), 4000);
  EXPECT_EQ(storage.Bytes(4608), 8000u);
  // Its blocks of values that share a scale are those of what is kept.
  storage.dtype = DType::kU8;
  storage.blocks = ValueBlocks{.values = 64, .scale = DType::kBF16};
  EXPECT_EQ(storage.Bytes(4608), 4000u + 2 * 63u);
}

TEST(Storage, OfDifferentFormsDiffers) {
  const Storage plain = DType::kU8;
  Storage blocks = plain;
  blocks.blocks = ValueBlocks{.values = 64, .scale = DType::kF16};
  Storage sparse = plain;
  sparse.sparsity = Sparsity{.kept = 1, .block = {}, .member = 0};
  EXPECT_EQ(plain, DType::kU8);
  EXPECT_NE(plain, DType::kF32);
  EXPECT_NE(blocks, plain);
  EXPECT_NE(sparse, plain);
  EXPECT_NE(sparse, blocks);
}

}  // namespace
}  // namespace thimble
