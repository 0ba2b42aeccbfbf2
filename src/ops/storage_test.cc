// SPDX-License-Identifier: Apache-2.0
//
// That every form of every op refuses other types is tests/op_forms_test.cc's.
#include "ops/storage.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ops/commit.h"

namespace thimble::ops {
namespace {

constexpr DType kDTypes[] = {DType::kF32, DType::kF16, DType::kBF16,
                             DType::kU8,  DType::kI32, DType::kBit};

TEST(Storage, CopiesTakeOneType) {
  for (const DType state : kDTypes) {
    for (const DType next : kDTypes) {
      const std::vector<ValueSpec> inputs = {{{3}, state}, {{3}, next}};
      const Status status = Commit().Infer(inputs).status();
      ASSERT_EQ(status.ok(), next == state);
      if (status.ok()) continue;
      const std::string both = std::string("needs next stored as ") +
                               DTypeName(state) + ", got " + DTypeName(next);
      EXPECT_NE(status.message().find(both), std::string::npos)
          << status.message();
    }
  }
}

TEST(Storage, BlocksAndSparsityAreNotTakenForThePlainType) {
  ValueSpec w = {{8, 6}, DType::kF32};
  w.storage.sparsity = Sparsity{.kept = 9, .block = {}, .member = 0};
  EXPECT_EQ(CheckStored("w", w, DType::kF32).message(),
            "needs w stored as f32, got f32, sparse [8, 6]");
  ValueSpec v = {{8, 6}, DType::kU8};
  v.storage.blocks = ValueBlocks{.values = 64, .scale = DType::kF16};
  EXPECT_EQ(CheckStored("v", v, DType::kU8).message(),
            "needs v stored as u8, got u8 in blocks of 64 [8, 6]");
}

TEST(Storage, BytesWhereF32IsNeededAreToBeNormalized) {
  const Status status =
      CheckStored("x", {{2, 3}, DType::kU8, kBatchAxis}, DType::kF32);
  EXPECT_EQ(status.message(),
            "needs x stored as f32, got u8 [2, 3]; normalize images first");
}

}  // namespace
}  // namespace thimble::ops
