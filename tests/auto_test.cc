// SPDX-License-Identifier: Apache-2.0
//
// `auto`: the budget is kept, and what it costs is as little as can be.
#include "planner/checkpoint/auto.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "planner/checkpoint/checkpoint.h"
#include "planner/fuse.h"
#include "planner/program.h"
#include "planner/schedule.h"
#include "thimble/model.h"
#include "thimble/plan.h"

namespace thimble::testing {
namespace {

Model ModelOf(const std::string& name, int64_t batch, int64_t channels = 3,
              int64_t side = 32) {
  Result<Model> model = BuildModel(
      name, {.batch = batch,
             .images = {.channels = channels, .height = side, .width = side}});
  EXPECT_TRUE(model.ok()) << model.status().message();
  return *std::move(model);
}

double RatioOf(const Plan& plan) {
  const auto step = static_cast<double>(plan.flops_step());
  return step / (step - static_cast<double>(plan.flops_recompute()));
}

Result<Plan> Auto(const Model& model, uint64_t budget) {
  return MakePlan(model,
                  {.threads = 2, .checkpoint = "auto", .budget = budget});
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

struct Case {
  const char* name;
  int64_t batch;
  int64_t channels, side;  // of the images
};

// Chains of residual blocks, a plain chain, and one without articulation
// points.
constexpr Case kCases[] = {{"wrn-28-2", 100, 3, 32},
                           {"resnet-110", 100, 3, 32},
                           {"cnn", 16, 1, 28},
                           {"lstm-1-16-28", 16, 1, 28}};

// What --budget picks from, made once for many budgets.
class Choices {
 public:
  explicit Choices(const Case& c)
      : program_(planner::Differentiate(
            planner::Fuse(ModelOf(c.name, c.batch, c.channels, c.side)),
            options_, 1)),
        chooser_(program_, options_) {}

  const planner::Candidate& Of(uint64_t budget) {
    return chooser_.Choose(budget);
  }
  // The named strategy's program.
  planner::Program Named(const char* strategy) const {
    return planner::ApplyStrategy(program_, *planner::ParseStrategy(strategy),
                                  options_)
        .program;
  }
  size_t ArenaOf(const planner::Program& program) const {
    return planner::PlaceBuffers(program, options_).bytes;
  }
  static int64_t WorkOf(const planner::Program& program) {
    return planner::CountFlops(program.graph, planner::MakeSchedule(program))
        .step;
  }

 private:
  PlanOptions options_{.threads = 2};
  planner::Program program_;
  planner::Chooser chooser_;
};

class AutoChoice : public ::testing::TestWithParam<Case> {};

TEST_P(AutoChoice, CostsNoMoreThanAnyNamedStrategyOfTheSameArena) {
  Choices choices(GetParam());
  for (const char* strategy :
       {"none", "no-bn", "every-1", "every-2", "every-3", "residual-1",
        "residual-2", "residual-1*", "residual-2*", "residual-3*", "sqrt",
        "recursive-1", "recursive-2", "revolve"}) {
    SCOPED_TRACE(strategy);
    const planner::Program named = choices.Named(strategy);
    const size_t arena = choices.ArenaOf(named);
    const planner::Candidate& chosen = choices.Of(arena);
    EXPECT_LE(chosen.placement.bytes, arena);
    EXPECT_LE(chosen.work, Choices::WorkOf(named));
  }
}

TEST_P(AutoChoice, LessBudgetNeverTakesMoreBytesOrLessWork) {
  Choices choices(GetParam());
  const uint64_t most = choices.ArenaOf(choices.Named("none"));
  const uint64_t least = choices.Of(0).placement.bytes;
  ASSERT_LT(least, most);
  EXPECT_EQ(choices.Of(least - 1).placement.bytes, least);
  uint64_t arena = 0;
  int64_t work = INT64_MAX;
  int different = 0;
  constexpr uint64_t kBudgets = 60;
  for (uint64_t k = 0; k <= kBudgets; ++k) {
    const uint64_t budget = least + (most - least) * k / kBudgets;
    const planner::Candidate& chosen = choices.Of(budget);
    EXPECT_LE(chosen.placement.bytes, budget);
    EXPECT_GE(chosen.placement.bytes, arena);
    EXPECT_LE(chosen.work, work);
    different += chosen.placement.bytes != arena;
    arena = chosen.placement.bytes;
    work = chosen.work;
  }
  EXPECT_GT(different, 3);
  EXPECT_EQ(work, Choices::WorkOf(choices.Named("none")));
}

INSTANTIATE_TEST_SUITE_P(Networks, AutoChoice, ::testing::ValuesIn(kCases),
                         [](const auto& tested) {
                           std::string name = tested.param.name;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

// The choices above are those of a plan.
TEST(Auto, ThePlanIsWhatTheBudgetPicks) {
  const Case c{"wrn-16-1", 32, 3, 32};
  Choices choices(c);
  const Model model = ModelOf(c.name, c.batch);
  const uint64_t least = choices.Of(0).placement.bytes;
  EXPECT_FALSE(Auto(model, least - 1).ok());
  for (const uint64_t budget : {least, least * 5 / 4, least * 2}) {
    const Result<Plan> plan = Auto(model, budget);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    const planner::Candidate& chosen = choices.Of(budget);
    EXPECT_EQ(plan->arena_bytes(), chosen.placement.bytes);
    EXPECT_EQ(plan->flops_step(), chosen.work);
    EXPECT_LE(plan->arena_bytes(), budget);
  }
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
