// SPDX-License-Identifier: Apache-2.0
#include "planner/recompute/strategy.h"

#include <gtest/gtest.h>

#include <string>

namespace thimble::planner {
namespace {

using Kind = Strategy::Kind;

Strategy Parsed(const std::string& name) {
  const Result<Strategy> strategy = ParseStrategy(name);
  EXPECT_TRUE(strategy.ok()) << name << ": " << strategy.status().message();
  return strategy.ok() ? *strategy : Strategy{};
}

TEST(ParseStrategy, ReadsEveryFamily) {
  EXPECT_EQ(Parsed("none"), Strategy{});
  EXPECT_EQ(Parsed("no-bn"), (Strategy{.kind = Kind::kNoBn, .name = "no-bn"}));
  EXPECT_EQ(Parsed("every-3"),
            (Strategy{.kind = Kind::kEvery, .m = 3, .name = "every-3"}));
  EXPECT_EQ(Parsed("residual-2"),
            (Strategy{.kind = Kind::kResidual, .m = 2, .name = "residual-2"}));
  EXPECT_EQ(Parsed("sqrt"), (Strategy{.kind = Kind::kSqrt, .name = "sqrt"}));
  EXPECT_EQ(
      Parsed("recursive-1"),
      (Strategy{.kind = Kind::kRecursive, .m = 1, .name = "recursive-1"}));
  EXPECT_EQ(Parsed("revolve"),
            (Strategy{.kind = Kind::kRevolve, .name = "revolve"}));
  EXPECT_EQ(Parsed("revolve-16"),
            (Strategy{.kind = Kind::kRevolve, .m = 16, .name = "revolve-16"}));
  EXPECT_EQ(Parsed("auto"), (Strategy{.kind = Kind::kAuto, .name = "auto"}));
}

TEST(ParseStrategy, ReadsTheStarInBothSpellingsUnderOneName) {
  const Strategy star = Parsed("residual-2*");
  EXPECT_EQ(star, (Strategy{.kind = Kind::kResidual,
                            .m = 2,
                            .star = true,
                            .name = "residual-2*"}));
  EXPECT_EQ(Parsed("residual-2s"), star);
  EXPECT_EQ(Parsed("residual-002*"), star);
}

TEST(ParseStrategy, RefusesOtherNamesAndListsThoseThatThereAre) {
  for (const std::string name : {"",
                                 "None",
                                 "nothing",
                                 "every",
                                 "every-",
                                 "every-0",
                                 "every--1",
                                 "every-1.5",
                                 "every-2*",
                                 "every2",
                                 "residual",
                                 "sqrt-2",
                                 "residual-*",
                                 "revolve-0",
                                 "recursive-1s",
                                 "residual-2**",
                                 "auto-1",
                                 "none ",
                                 " none",
                                 "every-1000001",
                                 "every-99999999999999999999"}) {
    const Result<Strategy> strategy = ParseStrategy(name);
    ASSERT_FALSE(strategy.ok()) << name;
    const std::string& message = strategy.status().message();
    EXPECT_NE(message.find("'" + name + "'"), std::string::npos) << message;
    EXPECT_NE(message.find(KnownStrategies()), std::string::npos) << message;
  }
  EXPECT_EQ(Parsed("every-1000000").m, 1'000'000);
}

}  // namespace
}  // namespace thimble::planner
