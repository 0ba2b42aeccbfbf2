// SPDX-License-Identifier: Apache-2.0
//
// What a budget may take of 16 bits where that is allowed: when, which type,
// and what is told of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "planner/fuse.h"
#include "planner/program.h"
#include "planner/step_cost.h"
#include "search_checks.h"
#include "thimble/plan.h"
#include "thimble/plan_search.h"
#include "thimble/target_class.h"

namespace thimble::testing {
namespace {

const PrecisionChoice kF16 = {Precision::All(DType::kF16), nullptr};
const PrecisionChoice kBF16 = {Precision::All(DType::kBF16), nullptr};

PlanOptions Allowing(std::vector<PrecisionChoice> allowed, uint64_t budget) {
  PlanOptions options = Auto(budget);
  options.allow_precision = std::move(allowed);
  return options;
}

PlanOptions Given(DType dtype, uint64_t budget) {
  PlanOptions options = Auto(budget);
  options.precision = Precision::All(dtype);
  return options;
}

TEST(AllowPrecision, KeepsABudgetThatOnlySixteenBitsKeep) {
  const Model model = ModelOf("wrn-10-1", 16);
  const uint64_t budget = LeastOf(model, Auto(0)) - 1;
  EXPECT_FALSE(MakePlan(model, Auto(budget)).ok());
  for (const PrecisionChoice& choice : {kF16, kBF16}) {
    const Result<Plan> plan = MakePlan(model, Allowing({choice}, budget));
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    EXPECT_LE(plan->arena_bytes(), budget);
    EXPECT_EQ(plan->options().precision, choice.precision);
    EXPECT_TRUE(ValidatePlan(*plan).ok());
    const Result<Plan> given =
        MakePlan(model, Given(choice.precision.parameters, budget));
    ASSERT_TRUE(given.ok());
    EXPECT_EQ(plan->Explain(), given->Explain());
  }
}

TEST(AllowPrecision, ChangesNothingWhereF32Fits) {
  const Model model = ModelOf("wrn-10-1", 16);
  const uint64_t least = LeastOf(model, Auto(0));
  for (const uint64_t budget : {least, least * 5 / 4}) {
    EXPECT_EQ(MakePlan(model, Allowing({kF16, kBF16}, budget))->Explain(),
              MakePlan(model, Auto(budget))->Explain());
  }
  PlanOptions no_budget = kNone;
  no_budget.allow_precision = {kF16};
  EXPECT_EQ(MakePlan(model, no_budget)->Explain(),
            MakePlan(model, kNone)->Explain());
}

TEST(AllowPrecision, IsUsedAfterEveryMicrobatch) {
  const Model model = ModelOf("wrn-10-1", 32);
  PlanOptions options = Allowing({kF16}, LeastOf(model, Auto(0)) - 1);
  options.allow_microbatch = true;
  const Result<Plan> parts = MakePlan(model, options);
  ASSERT_TRUE(parts.ok());
  EXPECT_TRUE(parts->options().precision.is_f32());
  EXPECT_LT(parts->microbatch(), 32);
  // Below what f32 can do at all, f16 begins at the whole batch again.
  PlanOptions f32 = Auto(0);
  f32.allow_microbatch = true;
  const uint64_t least = LeastOf(model, f32);
  const uint64_t whole = LeastOf(model, Given(DType::kF16, 0));
  options.budget = least - 1;
  const Result<Plan> narrow = MakePlan(model, options);
  ASSERT_TRUE(narrow.ok()) << narrow.status().message();
  EXPECT_EQ(narrow->options().precision, kF16.precision);
  EXPECT_EQ(narrow->microbatch() == 32, whole < least);
}

TEST(AllowPrecision, LessBudgetNeverTakesMoreBytes) {
  const Model model = ModelOf("wrn-10-1", 16);
  PlanOptions options = Allowing({kF16, kBF16}, 0);
  options.allow_microbatch = true;
  const uint64_t most = MakePlan(model, kNone)->arena_bytes();
  const uint64_t least = LeastOf(model, options);
  uint64_t arena = 0;
  bool f32 = false, f16 = false;
  constexpr uint64_t kBudgets = 20;
  for (uint64_t k = 0; k <= kBudgets; ++k) {
    options.budget = least + (most - least) * k / kBudgets;
    const Result<Plan> plan = MakePlan(model, options);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    EXPECT_LE(plan->arena_bytes(), *options.budget);
    EXPECT_GE(plan->arena_bytes(), arena);
    arena = plan->arena_bytes();
    const bool is_f32 = plan->options().precision.is_f32();
    EXPECT_TRUE(is_f32 || !f32) << "f32 for less, 16 bits for more";
    f32 = f32 || is_f32;
    f16 = f16 || plan->options().precision == kF16.precision;
  }
  EXPECT_TRUE(f32);
  EXPECT_TRUE(f16);
}

// ---- Which type

TEST(AllowPrecision, TakesTheTypeThatCostsLessOnTheNamedClass) {
  const Model model = ModelOf("wrn-10-1", 16);
  const uint64_t budget = LeastOf(model, Auto(0)) - 1;
  const auto chosen = [&](std::vector<PrecisionChoice> allowed,
                          TargetClass target, uint64_t bytes) {
    PlanOptions options = Allowing(std::move(allowed), bytes);
    options.target_class = target;
    return SearchOf(model, options).plan().options().precision.parameters;
  };
  // Also where nothing fits: both take the same bytes.
  for (const uint64_t bytes : {budget, uint64_t{1000}}) {
    SCOPED_TRACE(bytes);
    const TargetClass generic = TargetClass::kGeneric;
    EXPECT_EQ(chosen({kF16, kBF16}, generic, bytes), DType::kF16);
    EXPECT_EQ(chosen({kBF16, kF16}, generic, bytes), DType::kBF16);
    const TargetClass fast = TargetClass::kAvx512Bf16;
    EXPECT_EQ(chosen({kF16, kBF16}, fast, bytes), DType::kBF16);
    EXPECT_EQ(chosen({kBF16, kF16}, fast, bytes), DType::kBF16);
    EXPECT_EQ(chosen({kF16}, fast, bytes), DType::kF16);
  }
}

TEST(AllowPrecision, BringsItsOwnOptimizer) {
  const Model model = ModelOf("wrn-10-1", 16);
  const auto rounding = Sgd({.rounding = Rounding::kStochastic});
  PlanOptions options = Allowing({{Precision::All(DType::kBF16), rounding}},
                                 LeastOf(model, Auto(0)) - 1);
  const Result<Plan> plan = MakePlan(model, options);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->options().optimizer, rounding);
  options.budget = UINT64_MAX;
  EXPECT_EQ(MakePlan(model, options)->options().optimizer, options.optimizer);
}

TEST(AllowPrecision, RefusesATypeThatIsNone) {
  const Model model = ModelOf("wrn-10-1", 16);
  const Result<Plan> plan =
      MakePlan(model, Allowing({{Precision::All(DType::kU8), nullptr}}, 1000));
  EXPECT_EQ(plan.status().code(), StatusCode::kUsage);
}

double CostOver(const Precision& precision, TargetClass target) {
  const Model model = planner::Fuse(ModelOf("wrn-28-2", 10));
  const auto cost = [&](const Precision& p) {
    return static_cast<double>(planner::StepCost(
        planner::Differentiate(model, {.precision = p}, 1), target));
  };
  return cost(precision) / cost({});
}

// Nearly all of a convolutional network is products.
TEST(StepCost, OfProductsInBf16IsLessOnlyWhereTheyAreFast) {
  const TargetClass generic = TargetClass::kGeneric;
  const TargetClass fast = TargetClass::kAvx512Bf16;
  EXPECT_NEAR(CostOver(kBF16.precision, fast), 0.55, 0.02);
  EXPECT_GT(CostOver(kBF16.precision, fast), 0.55);  // norms are no products
  EXPECT_NEAR(CostOver(kBF16.precision, generic), 1.05, 0.01);
  EXPECT_NEAR(CostOver(kF16.precision, fast), 1.05, 0.01);
  // Weights alone in bf16 give no pairs of bf16 to multiply.
  EXPECT_EQ(CostOver({.parameters = DType::kBF16}, fast), 1.0);
}

// ---- What is told

TEST(AllowPrecision, IsTheNextThingThatARefusalNames) {
  const Model model = ModelOf("wrn-10-1", 32);
  Refusal refusal = SearchOf(model, Auto(1000)).Explain();
  ASSERT_EQ(FreedomsOf(refusal).back(), Freedom::kPrecision);
  const Reach reach = refusal.reaches.back();
  ASSERT_EQ(reach.options.allow_precision.size(), 1u);
  EXPECT_EQ(reach.options.allow_precision[0].precision, kF16.precision);
  EXPECT_EQ(reach.arena_bytes, LeastOf(model, Given(DType::kF16, 0)));
  ExpectExact(model, refusal);
  // Not where it is allowed or was given.
  for (const PlanOptions& options :
       {Allowing({kBF16}, 1000), Given(DType::kF16, 1000)}) {
    refusal = SearchOf(model, options).Explain();
    EXPECT_EQ(std::ranges::count(FreedomsOf(refusal), Freedom::kPrecision), 0);
    EXPECT_EQ(refusal.needed, reach.arena_bytes);
    ExpectExact(model, refusal);
  }
}

TEST(AllowPrecision, IsKeptByTradeOffs) {
  const Model model = ModelOf("wrn-16-1", 16);
  PlanSearch search =
      SearchOf(model, Allowing({kF16, kBF16}, LeastOf(model, Auto(0)) - 1));
  ASSERT_EQ(search.plan().options().precision, kF16.precision);
  const std::vector<TradeOff> trade_offs = search.TradeOffs();
  EXPECT_FALSE(trade_offs.empty());
  ExpectTrue(model, search.plan(), trade_offs);
  for (const TradeOff& trade : trade_offs) {
    EXPECT_EQ(MakePlan(model, trade.options)->options().precision,
              kF16.precision);
  }
}

}  // namespace
}  // namespace thimble::testing
