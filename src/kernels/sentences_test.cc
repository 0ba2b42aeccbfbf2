// SPDX-License-Identifier: Apache-2.0
#include "kernels/sentences.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace thimble::kernels {
namespace {

TEST(Sentences, RowsAreFoundInTheSentenceThatHoldsThem) {
  const std::vector<int32_t> ends = {3, 3, 7, 8, 8};
  const Sentences all = {static_cast<int64_t>(ends.size()), ends.data()};
  EXPECT_EQ(all.rows(), 8);
  for (int64_t s = 0; s < all.count; ++s) {
    for (int64_t row = all.begin(s); row < all.end(s); ++row) {
      EXPECT_EQ(all.Of(row), s) << row;
    }
  }
  EXPECT_EQ(all.begin(2), 3);
  EXPECT_EQ(all.end(1), 3);  // it is empty
  EXPECT_EQ(all.Of(8), all.count);
}

TEST(Sentences, NoneHaveNoRows) {
  const Sentences none = {0, nullptr};
  EXPECT_EQ(none.rows(), 0);
  EXPECT_EQ(none.Of(0), 0);
}

}  // namespace
}  // namespace thimble::kernels
