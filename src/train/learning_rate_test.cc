// SPDX-License-Identifier: Apache-2.0
#include "train/learning_rate.h"

#include <gtest/gtest.h>

namespace thimble::train {
namespace {

TEST(Schedule, RefusesWhatItCannotRead) {
  for (const char* text :
       {"", "linear", "steps:", "steps:0.5", "steps:2=0.1",
        "steps:0.5=0.1,0.4=0.01", "steps:a=b", "steps:0.5=-1", "steps:0.5=0.1,",
        "steps:nan=1", "steps:0x0.8=0.1", "steps:0.5=0x1p-3", "steps: 0.5=0.1",
        "steps:0.5= 0.1", "steps:+0.5=0.1", "steps:0.5=inf",
        "steps:=", "steps:0.5="}) {
    EXPECT_EQ(Schedule::Parse(text).status().code(), StatusCode::kUsage)
        << text;
  }
}

TEST(Schedule, WarmsUpLinearlyToTheBaseRate) {
  const auto constant = Schedule::Parse("constant");
  ASSERT_TRUE(constant.ok());
  EXPECT_DOUBLE_EQ(constant->Rate(0.4, 0, 100, 4), 0.1);
  EXPECT_DOUBLE_EQ(constant->Rate(0.4, 3, 100, 4), 0.4);
  EXPECT_DOUBLE_EQ(constant->Rate(0.4, 99, 100, 4), 0.4);
}

TEST(Schedule, CosineFallsFromBaseToNearZero) {
  const auto cosine = Schedule::Parse("cosine");
  ASSERT_TRUE(cosine.ok());
  EXPECT_DOUBLE_EQ(cosine->Rate(1.0, 0, 100, 0), 1.0);
  EXPECT_NEAR(cosine->Rate(1.0, 50, 100, 0), 0.5, 1e-12);
  EXPECT_NEAR(cosine->Rate(1.0, 100, 100, 0), 0.0, 1e-12);
  for (int step = 1; step < 100; ++step) {
    EXPECT_LT(cosine->Rate(1.0, step, 100, 0),
              cosine->Rate(1.0, step - 1, 100, 0));
  }
}

TEST(Schedule, InverseSqrtRisesAndThenFallsWithTheStepsNumber) {
  const auto inverse = Schedule::Parse("inverse-sqrt");
  ASSERT_TRUE(inverse.ok());
  EXPECT_DOUBLE_EQ(inverse->Rate(5e-4, 0, 9, 4000),
                   1e-7 + (5e-4 - 1e-7) / 4000);
  EXPECT_DOUBLE_EQ(inverse->Rate(5e-4, 3999, 9, 4000), 5e-4);
  EXPECT_DOUBLE_EQ(inverse->Rate(5e-4, 15999, 9, 4000), 5e-4 / 2);
  EXPECT_DOUBLE_EQ(inverse->Rate(1.0, 3, 9, 0), 0.5);
}

TEST(Schedule, StepsDropAtTheirFractions) {
  const auto steps = Schedule::Parse("steps:0.5=0.2,0.75=0.04");
  ASSERT_TRUE(steps.ok());
  EXPECT_DOUBLE_EQ(steps->Rate(0.1, 49, 100, 0), 0.1);
  EXPECT_DOUBLE_EQ(steps->Rate(0.1, 50, 100, 0), 0.1 * 0.2);
  EXPECT_DOUBLE_EQ(steps->Rate(0.1, 75, 100, 0), 0.1 * 0.04);
}

}  // namespace
}  // namespace thimble::train
