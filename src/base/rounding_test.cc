// SPDX-License-Identifier: Apache-2.0
#include "thimble/rounding.h"

#include <gtest/gtest.h>

namespace thimble {
namespace {

TEST(Rounding, IsNamedAndParsed) {
  for (const Rounding rounding :
       {Rounding::kNearest, Rounding::kStochastic, Rounding::kFeedback}) {
    EXPECT_EQ(*ParseRounding(RoundingName(rounding)), rounding);
  }
  const Status status = ParseRounding("up").status();
  EXPECT_EQ(status.code(), StatusCode::kUsage);
  EXPECT_NE(status.message().find("nearest, stochastic or feedback"),
            std::string::npos);
}

}  // namespace
}  // namespace thimble
