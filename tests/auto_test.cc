// SPDX-License-Identifier: Apache-2.0
//
// What a budget chooses: it is kept, and what that costs is as little as can
// be. And what is said of the choice: trade-offs and refusals, all true.
#include "planner/recompute/auto.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "closest_plan.h"
#include "planner/fuse.h"
#include "planner/placed_buffers.h"
#include "planner/program.h"
#include "planner/recompute/strategy_script.h"
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

Result<Plan> Auto(const Model& model, uint64_t budget, bool two_pass = false) {
  return MakePlan(model, {.threads = 2,
                          .recompute = "auto",
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
    EXPECT_LE(RatioOf(*plan), ratio) << plan->arena_bytes();
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

TEST(Auto, CostsNoMoreThanANamedStrategyInTwoPasses) {
  const Model model = ModelOf("wrn-16-1", 16);
  for (const char* strategy : {"none", "residual-1", "residual-2*", "sqrt"}) {
    SCOPED_TRACE(strategy);
    const Result<Plan> named = MakePlan(
        model, {.threads = 2, .recompute = strategy, .two_pass = true});
    ASSERT_TRUE(named.ok());
    const Result<Plan> chosen =
        Auto(model, named->arena_bytes(), /*two_pass=*/true);
    ASSERT_TRUE(chosen.ok()) << chosen.status().message();
    EXPECT_LE(chosen->arena_bytes(), named->arena_bytes());
    EXPECT_LE(chosen->flops_step(), named->flops_step());
  }
}

void ExpectMonotoneInTwoPasses(const Model& model, uint64_t budgets) {
  const uint64_t most = MakePlan(model, {.threads = 2})->arena_bytes();
  const uint64_t least =
      MakeClosestPlan(
          model,
          {.threads = 2, .recompute = "auto", .two_pass = true, .budget = 0})
          ->arena_bytes();
  ASSERT_LT(least, most);
  EXPECT_FALSE(Auto(model, least - 1, /*two_pass=*/true).ok());
  uint64_t arena = 0;
  int64_t work = INT64_MAX;
  int different = 0;
  for (uint64_t k = 0; k <= budgets; ++k) {
    const uint64_t budget = least + (most - least) * k / budgets;
    const Result<Plan> plan = Auto(model, budget, /*two_pass=*/true);
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

TEST(Auto, LessBudgetNeverTakesMoreBytesOrLessWorkInTwoPasses) {
  ExpectMonotoneInTwoPasses(ModelOf("wrn-16-1", 32), /*budgets=*/25);
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
        all_(program_, options_) {}

  struct Choice {
    uint64_t arena;
    int64_t work;
  };
  // The least work that fits; where nothing fits, the fewest bytes.
  Choice Of(uint64_t budget) {
    std::optional<size_t> index = all_.LeastWorkWithin(budget);
    if (!index.has_value()) index = all_.FewestBytesBelow(UINT64_MAX);
    return {all_.ArenaOf(*index), all_.FlopsOf(*index)};
  }
  Choice Named(const char* strategy) const {
    const planner::Program program = planner::ApplyStrategy(
        program_, *planner::ParseStrategy(strategy), options_);
    return {planner::PlaceBuffers(program, options_).bytes,
            planner::CountFlops(program.graph, planner::MakeSchedule(program))
                .step};
  }

 private:
  PlanOptions options_{.threads = 2};
  planner::Program program_;
  planner::Alternatives all_;
};

class AutoChoice : public ::testing::TestWithParam<Case> {};

TEST_P(AutoChoice, CostsNoMoreThanAnyNamedStrategyOfTheSameArena) {
  Choices choices(GetParam());
  for (const char* strategy :
       {"none", "no-bn", "every-1", "every-2", "every-3", "residual-1",
        "residual-2", "residual-1*", "residual-2*", "residual-3*", "sqrt",
        "recursive-1", "recursive-2", "revolve", "revolve-1", "revolve-3",
        "revolve-5"}) {
    SCOPED_TRACE(strategy);
    const Choices::Choice named = choices.Named(strategy);
    const Choices::Choice chosen = choices.Of(named.arena);
    EXPECT_LE(chosen.arena, named.arena);
    EXPECT_LE(chosen.work, named.work);
  }
}

TEST_P(AutoChoice, LessBudgetNeverTakesMoreBytesOrLessWork) {
  Choices choices(GetParam());
  const uint64_t most = choices.Named("none").arena;
  const uint64_t least = choices.Of(0).arena;
  ASSERT_LT(least, most);
  EXPECT_EQ(choices.Of(least - 1).arena, least);
  uint64_t arena = 0;
  int64_t work = INT64_MAX;
  int different = 0;
  constexpr uint64_t kBudgets = 60;
  for (uint64_t k = 0; k <= kBudgets; ++k) {
    const uint64_t budget = least + (most - least) * k / kBudgets;
    const Choices::Choice chosen = choices.Of(budget);
    EXPECT_LE(chosen.arena, budget);
    EXPECT_GE(chosen.arena, arena);
    EXPECT_LE(chosen.work, work);
    different += chosen.arena != arena;
    arena = chosen.arena;
    work = chosen.work;
  }
  EXPECT_GT(different, 3);
  EXPECT_EQ(work, choices.Named("none").work);
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
  const uint64_t least = choices.Of(0).arena;
  EXPECT_FALSE(Auto(model, least - 1).ok());
  for (const uint64_t budget : {least, least * 5 / 4, least * 2}) {
    const Result<Plan> plan = Auto(model, budget);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    const Choices::Choice chosen = choices.Of(budget);
    EXPECT_EQ(plan->arena_bytes(), chosen.arena);
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

// The smallest budget of one microbatch size.
uint64_t LeastAt(const Model& model, int64_t microbatch,
                 const std::string& strategy = "auto") {
  return MakeClosestPlan(model, {.threads = 2,
                                 .microbatch = microbatch,
                                 .recompute = strategy,
                                 .budget = 0})
      ->arena_bytes();
}

Result<Plan> WithMicrobatches(const Model& model, uint64_t budget,
                              int64_t min_microbatch = 0) {
  return MakePlan(model, {.threads = 2,
                          .recompute = "auto",
                          .budget = budget,
                          .allow_microbatch = true,
                          .min_microbatch = min_microbatch});
}

TEST(Allow, TakesTheLargestMicrobatchAtWhichSomethingFits) {
  const Model model = ModelOf("wrn-10-1", 32);
  const uint64_t least[] = {LeastAt(model, 32), LeastAt(model, 16),
                            LeastAt(model, 8)};
  const struct {
    uint64_t budget;
    int64_t microbatch;
  } cases[] = {{least[0], 32},
               {least[0] - 1, 16},
               {least[1], 16},
               {least[1] - 1, 8},
               {least[2], 8}};
  for (const auto& [budget, microbatch] : cases) {
    SCOPED_TRACE(budget);
    const Result<Plan> plan = WithMicrobatches(model, budget);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    EXPECT_EQ(plan->microbatch(), microbatch);
    EXPECT_LE(plan->arena_bytes(), budget);
    // With the least work there, as if the microbatch had been given.
    const Result<Plan> given = MakePlan(model, {.threads = 2,
                                                .microbatch = microbatch,
                                                .recompute = "auto",
                                                .budget = budget});
    ASSERT_TRUE(given.ok());
    EXPECT_EQ(plan->arena_bytes(), given->arena_bytes());
    EXPECT_EQ(plan->flops_step(), given->flops_step());
  }
  EXPECT_FALSE(WithMicrobatches(model, least[2] - 1).ok());
}

TEST(Allow, GoesNotBelowTheSmallestMicrobatchAllowed) {
  const Model model = ModelOf("wrn-10-1", 32);
  EXPECT_FALSE(WithMicrobatches(model, LeastAt(model, 16) - 1, 16).ok());
  EXPECT_EQ(WithMicrobatches(model, LeastAt(model, 4), 3)->microbatch(), 4);
  const Result<Plan> wrong = WithMicrobatches(model, 1, 33);
  EXPECT_EQ(wrong.status().code(), StatusCode::kUsage);
  // Without batch norms every division gives the same gradients.
  const Model plain = ModelOf("mlp", 32);
  const uint64_t smallest = MakeClosestPlan(plain, {.threads = 2,
                                                    .recompute = "auto",
                                                    .budget = 1000,
                                                    .allow_microbatch = true})
                                ->arena_bytes();
  uint64_t want = UINT64_MAX;
  for (int64_t size : {32, 16, 8, 4, 2, 1}) {
    want = std::min(want, LeastAt(plain, size));
  }
  EXPECT_EQ(smallest, want);
}

TEST(Allow, KeepsGhostBatchesWhole) {
  const Model model = ModelOf("wrn-10-1", 24);
  PlanOptions options = {.threads = 2,
                         .microbatch = 12,
                         .ghost_batch = 6,
                         .recompute = "auto",
                         .budget = 0};
  options.budget = MakeClosestPlan(model, options)->arena_bytes() - 1;
  options.microbatch = 0;
  options.allow_microbatch = true;
  const Result<Plan> plan = MakePlan(model, options);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(plan->microbatch(), 6);  // not 8
}

TEST(Allow, ChangesNothingThatIsGivenAndNothingWithoutNeed) {
  const Model model = ModelOf("wrn-10-1", 32);
  const uint64_t budget = LeastAt(model, 32) - 1;
  EXPECT_FALSE(MakePlan(model, {.threads = 2,
                                .microbatch = 32,
                                .recompute = "auto",
                                .budget = budget,
                                .allow_microbatch = true})
                   .ok());
  const Result<Plan> fixed = MakePlan(model, {.threads = 2,
                                              .recompute = "residual-1",
                                              .budget = budget,
                                              .allow_microbatch = true});
  ASSERT_TRUE(fixed.ok()) << fixed.status().message();
  EXPECT_EQ(fixed->options().recompute, "residual-1");
  EXPECT_LT(fixed->microbatch(), 32);
  EXPECT_LE(fixed->arena_bytes(), budget);
  EXPECT_EQ(
      MakePlan(model, {.threads = 2, .allow_microbatch = true})->microbatch(),
      32);
}

TEST(Allow, LessBudgetNeverTakesMoreBytesOrALargerMicrobatch) {
  const Model model = ModelOf("wrn-10-1", 32);
  const uint64_t most = MakePlan(model, {.threads = 2})->arena_bytes();
  const uint64_t least = LeastAt(model, 8);
  uint64_t arena = 0;
  int64_t microbatch = 0;
  int64_t work = 0;
  std::vector<int64_t> sizes;
  constexpr uint64_t kBudgets = 60;
  for (uint64_t k = 0; k <= kBudgets; ++k) {
    const uint64_t budget = least + (most - least) * k / kBudgets;
    const Result<Plan> plan = WithMicrobatches(model, budget);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    EXPECT_LE(plan->arena_bytes(), budget);
    EXPECT_GE(plan->arena_bytes(), arena);
    ASSERT_GE(plan->microbatch(), microbatch);
    if (plan->microbatch() == microbatch) {
      EXPECT_LE(plan->flops_step(), work);
    } else {
      sizes.push_back(plan->microbatch());
    }
    arena = plan->arena_bytes();
    microbatch = plan->microbatch();
    work = plan->flops_step();
  }
  EXPECT_EQ(sizes, (std::vector<int64_t>{8, 16, 32}));
}

}  // namespace
}  // namespace thimble::testing
