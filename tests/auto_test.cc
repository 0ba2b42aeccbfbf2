// SPDX-License-Identifier: Apache-2.0
//
// `auto`: the budget is kept, and what it costs is as little as can be.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "thimble/model.h"
#include "thimble/plan.h"

namespace thimble::testing {
namespace {

Model ModelOf(const std::string& name, int64_t batch) {
  Result<Model> model = BuildModel(
      name,
      {.batch = batch, .images = {.channels = 3, .height = 32, .width = 32}});
  EXPECT_TRUE(model.ok()) << model.status().message();
  return *std::move(model);
}

double RatioOf(const Plan& plan) {
  const auto step = static_cast<double>(plan.flops_step());
  return step / (step - static_cast<double>(plan.flops_recompute()));
}

Result<Plan> Auto(const Model& model, uint64_t budget, bool two_pass = false) {
  return MakePlan(model, {.threads = 2,
                          .checkpoint = "auto",
                          .two_pass = two_pass,
                          .budget = budget});
}

TEST(Auto, ReachesTheExactFrontOfWrn28) {
  const Model model = ModelOf("wrn-28-2", 100);
  // A unit is one tensor of the first stage; besides, there are parameters,
  // gradients, velocities, statistics, scratch and input.
  constexpr uint64_t kUnit = uint64_t{100} * 32768 * 4;
  constexpr uint64_t kRest = 18'000'000;
  const struct {
    double units;
    double ratio;
  } points[] = {{4, 1.25}, {5, 1.18}, {7, 1.105}};
  for (const auto& [units, ratio] : points) {
    SCOPED_TRACE(units);
    const auto budget =
        kRest + static_cast<uint64_t>(units * static_cast<double>(kUnit));
    const Result<Plan> plan = Auto(model, budget);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    EXPECT_TRUE(ValidatePlan(*plan).ok());
    EXPECT_LE(plan->arena_bytes(), budget);
    EXPECT_LE(plan->arena_bytes(), plan->lower_bound() * 101 / 100);
    EXPECT_LE(RatioOf(*plan), ratio + 0.0025)  // prologues, as with `none`
        << plan->arena_bytes();
  }
  const Plan none = *MakePlan(model, {.threads = 2});
  const Result<Plan> all = Auto(model, none.arena_bytes());
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(all->flops_step(), none.flops_step());
}

TEST(Auto, GoesBelowTheFloorOfRecomputationInTwoPasses) {
  const Model model = ModelOf("wrn-28-2", 100);
  constexpr uint64_t kBudget = 18'000'000 + uint64_t{350} * 32768 * 4;
  EXPECT_FALSE(Auto(model, kBudget).ok());
  const Result<Plan> plan = Auto(model, kBudget, /*two_pass=*/true);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_TRUE(ValidatePlan(*plan).ok());
  EXPECT_LE(plan->arena_bytes(), plan->lower_bound() * 101 / 100);
  EXPECT_LE(RatioOf(*plan), 1.4025) << plan->arena_bytes();
}

TEST(Auto, CostsNoMoreThanAnyNamedStrategyOfTheSameArena) {
  for (const char* name : {"wrn-16-1", "cnn"}) {
    const Model model = ModelOf(name, 16);
    for (const char* strategy :
         {"none", "no-bn", "every-1", "every-2", "every-3", "residual-1",
          "residual-2", "residual-1*", "residual-2*", "residual-3*", "sqrt",
          "recursive-1", "recursive-2", "revolve"}) {
      for (const bool two_pass : {false, true}) {
        SCOPED_TRACE(std::string(name) + " " + strategy +
                     (two_pass ? " in two passes" : ""));
        const Result<Plan> named = MakePlan(
            model,
            {.threads = 2, .checkpoint = strategy, .two_pass = two_pass});
        ASSERT_TRUE(named.ok());
        const Result<Plan> chosen = Auto(model, named->arena_bytes(), two_pass);
        ASSERT_TRUE(chosen.ok()) << chosen.status().message();
        EXPECT_LE(chosen->arena_bytes(), named->arena_bytes());
        EXPECT_LE(chosen->flops_step(), named->flops_step());
      }
    }
  }
}

void ExpectMonotone(const Model& model, bool two_pass, uint64_t budgets) {
  const uint64_t most = MakePlan(model, {.threads = 2})->arena_bytes();
  const uint64_t least = MakeClosestPlan(model, {.threads = 2,
                                                 .checkpoint = "auto",
                                                 .two_pass = two_pass,
                                                 .budget = 0})
                             ->arena_bytes();
  ASSERT_LT(least, most);
  EXPECT_FALSE(Auto(model, least - 1, two_pass).ok());
  uint64_t arena = 0;
  int64_t work = INT64_MAX;
  int different = 0;
  for (uint64_t k = 0; k <= budgets; ++k) {
    const uint64_t budget = least + (most - least) * k / budgets;
    const Result<Plan> plan = Auto(model, budget, two_pass);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    EXPECT_LE(plan->arena_bytes(), budget);
    EXPECT_GE(plan->arena_bytes(), arena);
    EXPECT_LE(plan->flops_step(), work);
    different += plan->arena_bytes() != arena;
    arena = plan->arena_bytes();
    work = plan->flops_step();
  }
  EXPECT_GT(different, 3);
}

TEST(Auto, LessBudgetNeverTakesMoreBytesOrLessWork) {
  const Model model = ModelOf("wrn-16-1", 32);
  ExpectMonotone(model, /*two_pass=*/false, /*budgets=*/60);
}

TEST(Auto, NorDoesItInTwoPasses) {
  const Model model = ModelOf("wrn-16-1", 32);
  ExpectMonotone(model, /*two_pass=*/true, /*budgets=*/25);
}

TEST(Auto, ARefusalNamesTheSmallestBudgetAndItWorks) {
  const Model model = ModelOf("wrn-10-1", 4);
  const Result<Plan> refused = Auto(model, 1000);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kFailed);
  const std::string& message = refused.status().message();
  const std::string says = "smallest budget that works is ";
  const size_t at = message.find(says);
  ASSERT_NE(at, std::string::npos) << message;
  const uint64_t budget = std::stoull(message.substr(at + says.size()));
  const Result<Plan> plan = Auto(model, budget);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(plan->arena_bytes(), budget);
  EXPECT_NE(message.find("'" + plan->peak_op().name + "'"), std::string::npos);
}

TEST(Auto, ThePromiseHoldsForAFixedStrategyToo) {
  const Model model = ModelOf("wrn-10-1", 4);
  const Result<Plan> refused =
      MakePlan(model, {.checkpoint = "residual-1", .budget = 1000});
  ASSERT_FALSE(refused.ok());
  const std::string& message = refused.status().message();
  const std::string says = "with --checkpoint auto it is ";
  const size_t at = message.find(says);
  ASSERT_NE(at, std::string::npos) << message;
  const uint64_t budget = std::stoull(message.substr(at + says.size()));
  EXPECT_TRUE(MakePlan(model, {.checkpoint = "auto", .budget = budget}).ok());
}

}  // namespace
}  // namespace thimble::testing
