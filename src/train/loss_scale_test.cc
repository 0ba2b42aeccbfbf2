// SPDX-License-Identifier: Apache-2.0
#include "train/loss_scale.h"

#include <gtest/gtest.h>

namespace thimble::train {
namespace {

LossScaler Scaler(std::string_view text, DType dtype = DType::kF16) {
  auto scaler = LossScaler::Parse(text, Precision::All(dtype));
  EXPECT_TRUE(scaler.ok()) << scaler.status().message();
  return *scaler;
}

TEST(LossScale, IsOnByItselfOnlyWhereGradientsAreF16) {
  EXPECT_TRUE(Scaler("", DType::kF16).is_on());
  EXPECT_FALSE(Scaler("", DType::kBF16).is_on());
  EXPECT_FALSE(Scaler("", DType::kF32).is_on());
  EXPECT_FALSE(Scaler("none", DType::kF16).is_on());
  EXPECT_TRUE(Scaler("dynamic", DType::kF32).is_on());
}

TEST(LossScale, StartsAndGrowsAsEachRuleSays) {
  const struct {
    const char* name;
    double initial;
    int64_t window;
  } rules[] = {{"dynamic", 65536, 2000},
               {"apex-2018", 4294967296.0, 1000},
               {"fairseq", 128, 16384}};
  for (const auto& rule : rules) {
    const LossScaler scaler = Scaler(rule.name);
    LossScaleState state = scaler.Begin();
    EXPECT_EQ(state.scale, rule.initial) << rule.name;
    for (int64_t i = 1; i < rule.window; ++i) scaler.Applied(&state);
    EXPECT_EQ(state.scale, rule.initial) << rule.name;
    scaler.Applied(&state);
    EXPECT_EQ(state.scale, 2 * rule.initial) << rule.name;
  }
}

TEST(LossScale, AnOverflowHalvesItAndStartsTheCountAgain) {
  const LossScaler scaler = Scaler("dynamic");
  LossScaleState state = scaler.Begin();
  for (int i = 0; i < 1999; ++i) scaler.Applied(&state);
  EXPECT_TRUE(scaler.Skipped(&state).ok());
  EXPECT_EQ(state.scale, 32768);
  scaler.Applied(&state);
  EXPECT_EQ(state.scale, 32768);
  for (int i = 0; i < 1999; ++i) scaler.Applied(&state);
  EXPECT_EQ(state.scale, 65536);
  EXPECT_EQ(state.skipped, 1);
}

TEST(LossScale, DoesNotGrowPastItsLimit) {
  const LossScaler scaler = Scaler("dynamic");
  LossScaleState state = scaler.Begin();
  for (int i = 0; i < 2000 * 20; ++i) scaler.Applied(&state);
  EXPECT_EQ(state.scale, 0x1p24);
}

TEST(LossScale, ItsFloorEndsTheRunWithAReason) {
  const struct {
    const char* name;
    int halvings;
  } rules[] = {{"dynamic", 16}, {"apex-2018", 32}, {"fairseq", 20}};
  for (const auto& rule : rules) {
    const LossScaler scaler = Scaler(rule.name);
    LossScaleState state = scaler.Begin();
    for (int i = 0; i < rule.halvings; ++i) {
      ASSERT_TRUE(scaler.Skipped(&state).ok()) << rule.name << " " << i;
    }
    const Status end = scaler.Skipped(&state);
    ASSERT_FALSE(end.ok()) << rule.name;
    EXPECT_NE(end.message().find("smallest loss scale"), std::string::npos)
        << end.message();
  }
}

TEST(LossScale, AFixedOneNeverMovesAndEndsTheRunOnOverflow) {
  const LossScaler scaler = Scaler("1024");
  LossScaleState state = scaler.Begin();
  for (int i = 0; i < 5000; ++i) scaler.Applied(&state);
  EXPECT_EQ(state.scale, 1024);
  const Status end = scaler.Skipped(&state);
  ASSERT_FALSE(end.ok());
  EXPECT_NE(end.message().find("or 'dynamic', may do"), std::string::npos)
      << end.message();
}

TEST(LossScale, RefusesWhatIsNoRuleAndNoPowerOfTwo) {
  for (const char* text : {"apex", "1000", "-2", "0", "nan", "inf", "1e300"}) {
    const auto scaler = LossScaler::Parse(text, {});
    ASSERT_FALSE(scaler.ok()) << text;
    EXPECT_NE(scaler.status().message().find(text), std::string::npos);
  }
}

}  // namespace
}  // namespace thimble::train
