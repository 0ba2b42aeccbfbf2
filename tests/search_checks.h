// SPDX-License-Identifier: Apache-2.0
//
// Searches, and checks of what they tell: refusals and trade-offs are planned
// again and compared.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "closest_plan.h"
#include "thimble/model.h"
#include "thimble/plan.h"
#include "thimble/plan_search.h"

namespace thimble::testing {

inline Model ModelOf(const std::string& name, int64_t batch) {
  Result<Model> model = BuildModel(
      name,
      {.batch = batch, .images = {.channels = 3, .height = 32, .width = 32}});
  EXPECT_TRUE(model.ok()) << model.status().message();
  return *std::move(model);
}

inline PlanSearch SearchOf(const Model& model, const PlanOptions& options) {
  Result<PlanSearch> search = PlanSearch::Create(model, options);
  EXPECT_TRUE(search.ok()) << search.status().message();
  return *std::move(search);
}

inline const PlanOptions kNone = {.threads = 2};

inline PlanOptions Auto(uint64_t budget) {
  return {.threads = 2, .recompute = "auto", .budget = budget};
}

inline uint64_t LeastOf(const Model& model, PlanOptions options) {
  options.budget = 0;
  return MakeClosestPlan(model, options)->arena_bytes();
}

inline std::vector<Freedom> FreedomsOf(const Refusal& refusal) {
  std::vector<Freedom> freedoms;
  for (const Reach& reach : refusal.reaches) freedoms.push_back(reach.freedom);
  return freedoms;
}

// Each budget does, and not a byte less; but for that, the options are those
// that were refused.
inline void ExpectExact(const Model& model, const Refusal& refusal) {
  PlanOptions options = refusal.options;
  options.budget = refusal.needed;
  EXPECT_TRUE(MakePlan(model, options).ok());
  options.budget = refusal.needed - 1;
  EXPECT_FALSE(MakePlan(model, options).ok());
  for (const Reach& reach : refusal.reaches) {
    SCOPED_TRACE(static_cast<int>(reach.freedom));
    EXPECT_EQ(reach.options.budget, reach.arena_bytes);
    const Result<Plan> plan = MakePlan(model, reach.options);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    EXPECT_EQ(plan->arena_bytes(), reach.arena_bytes);
    EXPECT_EQ(plan->microbatch(), reach.microbatch);
    EXPECT_FALSE(SearchOf(model,
                          [&] {
                            PlanOptions less = reach.options;
                            less.budget = reach.arena_bytes - 1;
                            return less;
                          }())
                     .fits());
  }
}

// Plans the trade-offs again, and compares.
inline void ExpectTrue(const Model& model, const Plan& plan,
                       const std::vector<TradeOff>& trade_offs) {
  for (const TradeOff& trade : trade_offs) {
    SCOPED_TRACE(trade.options.recompute);
    const Result<Plan> typed = MakePlan(model, trade.options);
    ASSERT_TRUE(typed.ok()) << typed.status().message();
    EXPECT_EQ(typed->arena_bytes(), trade.arena_bytes);
    EXPECT_EQ(typed->flops_step(), trade.flops_step);
    EXPECT_EQ(typed->microbatch(), plan.microbatch());
    // One that is worse in both respects would be no trade.
    EXPECT_TRUE(trade.arena_bytes < plan.arena_bytes() ||
                trade.flops_step < plan.flops_step());
  }
}

}  // namespace thimble::testing
