// SPDX-License-Identifier: Apache-2.0
#include "train/rewiring.h"

#include <gtest/gtest.h>

#include <vector>

namespace thimble::train {
namespace {

using Kind = RewiringTimes::Kind;

std::vector<int64_t> Due(const RewiringTimes& times, const RunLength& run) {
  std::vector<int64_t> due;
  for (int64_t step = 0; step < run.steps; ++step) {
    if (IsRewiringDue(times, step, run)) due.push_back(step);
  }
  return due;
}

TEST(Rewiring, HappensAsOftenAsThePapersSay) {
  const RunLength wrn = {.steps = 100'000, .steps_per_epoch = 500};
  const auto due = Due({.kind = Kind::kWrn}, wrn);
  EXPECT_EQ(due.size(), 367u);
  EXPECT_EQ(due.front(), 100);
  EXPECT_EQ(due.back(), 94'400);  // of 95,000
  EXPECT_EQ(Due({.kind = Kind::kWrn, .frequency = 2}, wrn).size(),
            249u + 275 + 150 + 63);
  const RunLength dct = {.steps = 50'000, .steps_per_epoch = 1'100};
  EXPECT_EQ(Due({.kind = Kind::kDct}, dct).size(), 184u);
}

TEST(Rewiring, PartsFollowTheLengthOfTheRunPeriodsDoNot) {
  // Epochs 0 to 2, 3 to 7, 8 to 13 and 14 to 18 of 20.
  const RunLength run = {.steps = 20'000, .steps_per_epoch = 1'000};
  const auto due = Due({.kind = Kind::kWrn}, run);
  EXPECT_EQ(due.size(), 29u + 25 + 15 + 6);
  EXPECT_TRUE(IsRewiringDue({.kind = Kind::kWrn}, 2'900, run));
  EXPECT_FALSE(IsRewiringDue({.kind = Kind::kWrn}, 3'100, run));
  EXPECT_TRUE(IsRewiringDue({.kind = Kind::kWrn}, 3'200, run));
  // By steps, the first part ends within an epoch.
  EXPECT_TRUE(IsRewiringDue({.kind = Kind::kDct}, 2'400, run));
  EXPECT_FALSE(IsRewiringDue({.kind = Kind::kDct}, 2'500, run));
}

TEST(Rewiring, MayBeEverySoManyStepsOrNever) {
  const RunLength run = {.steps = 100, .steps_per_epoch = 5};
  EXPECT_EQ(Due({.kind = Kind::kEvery, .every = 30}, run),
            (std::vector<int64_t>{30, 60, 90}));
  EXPECT_TRUE(Due({}, run).empty());
  // Periods of less than a step.
  EXPECT_EQ(Due({.kind = Kind::kWrn, .frequency = 1e9}, run).size(), 94u);
}

TEST(Rewiring, ScalesAreThoseOfTheNearestDensity) {
  EXPECT_EQ(WrnRewiringScale(0.5), (RewiringScale{4, 0.5}));
  EXPECT_EQ(WrnRewiringScale(0.4), (RewiringScale{1, 2}));
  EXPECT_EQ(WrnRewiringScale(0.3), (RewiringScale{2, 0.5}));
  EXPECT_EQ(WrnRewiringScale(0.2), (RewiringScale{2, 1}));
  EXPECT_EQ(WrnRewiringScale(0.1), (RewiringScale{1, 0.5}));
  EXPECT_EQ(WrnRewiringScale(0.05), (RewiringScale{1, 0.25}));
  EXPECT_EQ(WrnRewiringScale(0.9), WrnRewiringScale(0.5));
  EXPECT_EQ(WrnRewiringScale(0.06), WrnRewiringScale(0.05));
  EXPECT_EQ(DctRewiringScale(0.3), (RewiringScale{4, 0.125}));
  EXPECT_EQ(DctRewiringScale(0.23), (RewiringScale{2, 0.25}));
  EXPECT_EQ(DctRewiringScale(0.1), (RewiringScale{1, 0.5}));
  EXPECT_EQ(DctRewiringScale(0.001), (RewiringScale{0.5, 0.5}));
}

TEST(Rewiring, TargetsAreSharesOfAllPositions) {
  EXPECT_EQ(RewiringTarget(1, 1'451'520), 20'000);
  EXPECT_EQ(RewiringTarget(4, 1'451'520), 80'000);
  EXPECT_EQ(RewiringTarget(1, 38'060'032), 524'416);
}

}  // namespace
}  // namespace thimble::train
