// SPDX-License-Identifier: Apache-2.0
//
// What a budget may take of sparse weights where that is allowed: when, how
// many, and what is told of it.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "search_checks.h"
#include "thimble/plan.h"
#include "thimble/plan_search.h"

namespace thimble::testing {
namespace {

const std::vector<double> kShares = {0.5, 0.2};
const PrecisionChoice kHalf = {Precision::All(DType::kF16), nullptr};

PlanOptions AllowingSparse(uint64_t budget) {
  PlanOptions options = Auto(budget);
  options.allow_nonzero = kShares;
  return options;
}

PlanOptions GivenShare(double nonzero, uint64_t budget) {
  PlanOptions options = Auto(budget);
  options.sparse.nonzero = nonzero;
  return options;
}

TEST(AllowSparse, TakesTheLargestShareThatFits) {
  const Model model = ModelOf("wrn-10-1", 8);
  const uint64_t dense = LeastOf(model, Auto(0));
  const uint64_t half = LeastOf(model, GivenShare(0.5, 0));
  const uint64_t fifth = LeastOf(model, GivenShare(0.2, 0));
  ASSERT_LT(fifth, half);
  ASSERT_LT(half, dense);
  const std::pair<uint64_t, double> cases[] = {{dense, 1.0},
                                               {dense - 1, 0.5},
                                               {half, 0.5},
                                               {half - 1, 0.2},
                                               {fifth, 0.2}};
  for (const auto& [budget, share] : cases) {
    SCOPED_TRACE(budget);
    const Result<Plan> plan = MakePlan(model, AllowingSparse(budget));
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    EXPECT_EQ(plan->options().sparse.nonzero, share);
    EXPECT_TRUE(ValidatePlan(*plan).ok());
    EXPECT_EQ(plan->Explain(),
              MakePlan(model, GivenShare(share, budget))->Explain());
  }
  EXPECT_FALSE(MakePlan(model, AllowingSparse(fifth - 1)).ok());
  PlanOptions no_budget = kNone;
  no_budget.allow_nonzero = kShares;
  EXPECT_TRUE(MakePlan(model, no_budget)->options().sparse.is_dense());
}

// In 16 bits where they are allowed, at the whole batch first.
TEST(AllowSparse, IsTheLastResort) {
  const Model model = ModelOf("wrn-10-1", 32);
  PlanOptions dense = Auto(0);
  dense.allow_microbatch = true;
  dense.allow_precision = {kHalf};
  const uint64_t least = LeastOf(model, dense);
  PlanOptions options = dense;
  options.allow_nonzero = kShares;
  options.budget = least;
  EXPECT_TRUE(MakePlan(model, options)->options().sparse.is_dense());
  options.budget = least - 1;
  const Result<Plan> plan = MakePlan(model, options);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(plan->options().sparse.nonzero, 0.5);
  EXPECT_EQ(plan->options().precision, kHalf.precision);
  PlanOptions given = dense;
  given.sparse.nonzero = 0.5;
  given.precision = kHalf.precision;
  given.budget = options.budget;
  EXPECT_EQ(plan->Explain(), MakePlan(model, given)->Explain());
}

TEST(AllowSparse, LessBudgetNeverTakesMoreBytes) {
  const Model model = ModelOf("wrn-10-1", 16);
  PlanOptions options = AllowingSparse(0);
  options.allow_microbatch = true;
  const uint64_t most = LeastOf(model, Auto(0)) * 5 / 4;
  const uint64_t least = LeastOf(model, options);
  uint64_t arena = 0;
  double share = 0;
  for (uint64_t k = 0; k <= 12; ++k) {
    options.budget = least + (most - least) * k / 12;
    const Result<Plan> plan = MakePlan(model, options);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    EXPECT_LE(plan->arena_bytes(), *options.budget);
    EXPECT_GE(plan->arena_bytes(), arena);
    EXPECT_GE(plan->options().sparse.nonzero, share);
    arena = plan->arena_bytes();
    share = plan->options().sparse.nonzero;
  }
  EXPECT_EQ(share, 1.0);
}

TEST(AllowSparse, RefusesSharesThatDoNotGoDown) {
  const Model model = ModelOf("wrn-10-1", 16);
  PlanOptions options = Auto(1'000'000'000);
  for (const std::vector<double>& shares :
       {std::vector{0.0}, std::vector{1.0}, std::vector{0.2, 0.5},
        std::vector{0.5, 0.5}, std::vector{std::nan("")}}) {
    options.allow_nonzero = shares;
    const Result<Plan> plan = MakePlan(model, options);
    EXPECT_EQ(plan.status().code(), StatusCode::kUsage);
  }
}

// As with PlanOptions::sparse: before a budget could ask for it.
TEST(AllowSparse, RefusesAModelThatCannotBeSparse) {
  const Model model = ModelOf("wrn-10-1", 16);
  PlanOptions options = AllowingSparse(1'000'000'000);
  options.sparse.weights = {"nothing"};
  EXPECT_EQ(MakePlan(model, options).status().code(), StatusCode::kUsage);
  options.sparse.weights.clear();
  EXPECT_TRUE(MakePlan(model, options).ok());
}

TEST(AllowSparse, IsKeptByTradeOffsAndRefusals) {
  const Model model = ModelOf("wrn-16-1", 16);
  const uint64_t budget = LeastOf(model, Auto(0)) - 1;
  PlanSearch search = SearchOf(model, AllowingSparse(budget));
  ASSERT_EQ(search.plan().options().sparse.nonzero, 0.5);
  const std::vector<TradeOff> trade_offs = search.TradeOffs();
  EXPECT_FALSE(trade_offs.empty());
  ExpectTrue(model, search.plan(), trade_offs);
  for (const TradeOff& trade : trade_offs) {
    EXPECT_EQ(MakePlan(model, trade.options)->options().sparse.nonzero, 0.5);
  }
  const Refusal refusal = SearchOf(model, AllowingSparse(1000)).Explain();
  EXPECT_EQ(refusal.needed, LeastOf(model, GivenShare(0.2, 0)));
  ExpectExact(model, refusal);
}

}  // namespace
}  // namespace thimble::testing
