// SPDX-License-Identifier: Apache-2.0
//
// What a search tells beside its plan: trade-offs, and why nothing fits. All of
// it is true as a plan of its own, and nothing is built twice for it.
#include "thimble/plan_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "planner/choices.h"
#include "planner/choose.h"
#include "planner/refuse.h"
#include "planner/trade_offs.h"
#include "search_checks.h"
#include "thimble/model.h"
#include "thimble/network.h"
#include "thimble/plan.h"

namespace thimble::testing {
namespace {

TEST(PlanSearch, GivesThePlanOfMakePlanWhereOneFits) {
  const Model model = ModelOf("wrn-10-1", 8);
  PlanSearch search = SearchOf(model, kNone);
  EXPECT_TRUE(search.fits());
  EXPECT_TRUE(search.CheckBudget().ok());
  const std::string plan = MakePlan(model, kNone)->Explain();
  EXPECT_EQ(search.plan().Explain(), plan);
  // What was asked meanwhile leaves no trace in it.
  EXPECT_FALSE(search.TradeOffs().empty());
  EXPECT_EQ(std::move(search).Take().Explain(), plan);
}

TEST(PlanSearch, GivesTheFewestBytesWhereNothingFits) {
  const Model model = ModelOf("wrn-10-1", 8);
  const uint64_t least = LeastOf(model, Auto(0));
  EXPECT_TRUE(SearchOf(model, Auto(least)).fits());
  PlanSearch search = SearchOf(model, Auto(least - 1));
  EXPECT_FALSE(search.fits());
  EXPECT_EQ(search.plan().arena_bytes(), least);
  EXPECT_FALSE(search.CheckBudget().ok());
}

// ---- Nothing is built twice

// What `thimble plan` asks, counted at its parts.
class Counted {
 public:
  Counted(const Model& model, const PlanOptions& options)
      : choices_(model, options), plan_(planner::ChoosePlan(choices_)) {}

  void Ask() {
    if (plan_.arena_bytes() <= choices_.options().budget.value_or(UINT64_MAX)) {
      planner::FindTradeOffs(choices_, plan_);
    } else {
      planner::ExplainRefusal(choices_, plan_);
    }
  }
  size_t programs() const { return choices_.programs_built(); }
  size_t alternatives() const { return choices_.alternatives_built(); }

 private:
  planner::Choices choices_;
  Plan plan_;
};

TEST(PlanSearch, ReadsTradeOffsFromWhatThePlanWasChosenFrom) {
  const Model model = ModelOf("wrn-10-1", 16);
  Counted budget(model, Auto(MakePlan(model, kNone)->arena_bytes()));
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(budget.programs(), 1u);
    EXPECT_EQ(budget.alternatives(), 1u);
    budget.Ask();
  }
  // A strategy by name has no alternatives until somebody asks.
  Counted named(model, kNone);
  EXPECT_EQ(named.alternatives(), 0u);
  for (int i = 0; i < 2; ++i) {
    named.Ask();
    EXPECT_EQ(named.programs(), 1u);
    EXPECT_EQ(named.alternatives(), 1u);
  }
}

TEST(PlanSearch, ReadsARefusalFromProgramsThatAreBuiltOnce) {
  const Model model = ModelOf("wrn-10-1", 16);
  Counted refused(model, Auto(1000));
  EXPECT_EQ(refused.programs(), 1u);
  EXPECT_EQ(refused.alternatives(), 1u);
  for (int i = 0; i < 2; ++i) {
    refused.Ask();
    // Batches of 16 and microbatches of 8; the first with one thread and in
    // f16, too.
    EXPECT_EQ(refused.programs(), 3u);
    EXPECT_EQ(refused.alternatives(), 4u);
  }
  // All sizes are there already: 16 and 8, each then with one thread and in
  // f16.
  PlanOptions options = Auto(1000);
  options.allow_microbatch = true;
  Counted allowed(model, options);
  EXPECT_EQ(allowed.programs(), 2u);
  allowed.Ask();
  EXPECT_EQ(allowed.programs(), 4u);
  EXPECT_EQ(allowed.alternatives(), 6u);
}

// ---- Refusals

TEST(Refused, TellsThePeakAndTheBytesByRole) {
  const Model model = ModelOf("cnn", 8);
  PlanOptions options = kNone;
  options.budget = 1000;
  PlanSearch search = SearchOf(model, options);
  const Plan plan = *MakePlan(model, kNone);
  const Refusal refusal = search.Explain();
  EXPECT_EQ(refusal.model, "cnn");
  EXPECT_EQ(refusal.batch, 8);
  EXPECT_EQ(refusal.microbatch, 8);
  EXPECT_EQ(refusal.options.threads, 2);
  EXPECT_EQ(refusal.needed, plan.arena_bytes());
  EXPECT_EQ(refusal.budget, 1000u);
  EXPECT_EQ(refusal.peak_op, plan.peak_op().name);
  size_t sum = 0;
  for (size_t role = 0; role < kRoles; ++role) {
    EXPECT_EQ(refusal.peak_bytes[role],
              plan.peak_bytes(static_cast<Role>(role)));
    sum += refusal.peak_bytes[role];
  }
  EXPECT_EQ(sum, plan.lower_bound());
}

TEST(Refused, EveryReachWorksAndNotAByteLess) {
  const Model model = ModelOf("wrn-10-1", 32);
  PlanOptions options = {
      .threads = 2, .recompute = "residual-1", .budget = 1000};
  Refusal refusal = SearchOf(model, options).Explain();
  EXPECT_EQ(FreedomsOf(refusal),
            (std::vector{Freedom::kOneThread, Freedom::kRecomputation,
                         Freedom::kMicrobatch, Freedom::kPrecision}));
  EXPECT_EQ(refusal.reaches[0].options.threads, 1);
  EXPECT_EQ(refusal.reaches[1].options.recompute, "auto");
  EXPECT_EQ(refusal.reaches[1].options.threads, 2);
  EXPECT_TRUE(refusal.reaches[2].options.allow_microbatch);
  EXPECT_EQ(refusal.reaches[2].microbatch, 8);
  EXPECT_TRUE(refusal.two_passes_may_help);
  ExpectExact(model, refusal);

  // In place of a microbatch that was given.
  options.microbatch = 16;
  refusal = SearchOf(model, options).Explain();
  ASSERT_EQ(refusal.reaches.size(), 4u);
  EXPECT_EQ(refusal.reaches[2].options.microbatch, 0);
  ExpectExact(model, refusal);

  options.microbatch = 0;
  options.allow_microbatch = true;
  refusal = SearchOf(model, options).Explain();
  EXPECT_EQ(FreedomsOf(refusal),
            (std::vector{Freedom::kOneThread, Freedom::kRecomputation,
                         Freedom::kPrecision}));
  EXPECT_EQ(refusal.microbatch, 8);
  ExpectExact(model, refusal);

  options = {.recompute = "auto", .two_pass = true, .budget = 1000};
  options.microbatch = 8;
  refusal = SearchOf(model, options).Explain();
  EXPECT_FALSE(refusal.two_passes_may_help);
  EXPECT_EQ(FreedomsOf(refusal), (std::vector{Freedom::kPrecision}));
}

TEST(Refused, OfEvaluationReachesOneImage) {
  const Model model = ModelOf("wrn-10-1", 32);
  PlanOptions options = kNone;
  options.training = false;
  options.budget = 1000;
  const Refusal refusal = SearchOf(model, options).Explain();
  EXPECT_EQ(FreedomsOf(refusal),
            (std::vector{Freedom::kOneThread, Freedom::kOneAtATime}));
  EXPECT_EQ(refusal.reaches[1].microbatch, 1);
  EXPECT_FALSE(refusal.two_passes_may_help);
  ExpectExact(model, refusal);
}

TEST(Refused, NamesNoMicrobatchThatTakesMore) {
  // All parameters: parts of a batch need the gradients from the start.
  Network net("wide", 2);
  const ValueId x = net.Images({.channels = 1, .height = 2, .width = 2});
  const Result<Model> model = net.Finish(
      net.Linear("fc2", net.Linear("fc1", net.Flatten(x), 2000), 10));
  ASSERT_TRUE(model.ok()) << model.status().message();
  PlanOptions parts = Auto(0);
  parts.microbatch = 1;
  ASSERT_GT(LeastOf(*model, parts), LeastOf(*model, Auto(0)));
  for (const Freedom freedom :
       FreedomsOf(SearchOf(*model, Auto(1000)).Explain())) {
    EXPECT_NE(freedom, Freedom::kMicrobatch);
  }
  // From there, the whole batch is what is reached.
  parts.budget = 1000;
  const Refusal refusal = SearchOf(*model, parts).Explain();
  const auto reach =
      std::ranges::find(refusal.reaches, Freedom::kMicrobatch, &Reach::freedom);
  ASSERT_NE(reach, refusal.reaches.end());
  EXPECT_EQ(reach->microbatch, 2);
  ExpectExact(*model, refusal);
}

// Whoever sets PlanOptions is never told to type an option.
TEST(Refused, InWordsNamesNoOptionOfTheTool) {
  const Model model = ModelOf("wrn-10-1", 32);
  PlanOptions named = {.threads = 2, .recompute = "residual-1", .budget = 1000};
  PlanOptions evaluation = named;
  evaluation.training = false;
  PlanOptions no_effect = kNone;
  no_effect.min_microbatch = 8;
  for (const PlanOptions& options : {named, evaluation, no_effect}) {
    const Status status = MakePlan(model, options).status();
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.message().find("--"), std::string::npos)
        << status.message();
  }
  PlanSearch search = SearchOf(model, named);
  const Refusal refusal = search.Explain();
  const std::string message = search.CheckBudget().message();
  EXPECT_EQ(message.find(NeedText(refusal)), 0u) << message;
  for (const Reach& reach : refusal.reaches) {
    EXPECT_NE(message.find(" " + std::to_string(reach.arena_bytes) +
                           " bytes would do"),
              std::string::npos)
        << message;
  }
}

// ---- Trade-offs

TEST(TradeOffs, LieOnBothSidesAndAreTrue) {
  const Model model = ModelOf("wrn-16-1", 16);
  PlanSearch none = SearchOf(model, kNone);
  const std::vector<TradeOff> of_none = none.TradeOffs();
  ExpectTrue(model, none.plan(), of_none);
  EXPECT_EQ(of_none.size(), 3u);
  for (const TradeOff& trade : of_none) {
    EXPECT_LT(trade.arena_bytes, none.plan().arena_bytes());
    EXPECT_GE(trade.flops_step, none.plan().flops_step());
  }
  PlanSearch least = SearchOf(model, Auto(0));
  const std::vector<TradeOff> of_least = least.TradeOffs();
  ExpectTrue(model, least.plan(), of_least);
  EXPECT_EQ(of_least.size(), 3u);
  for (const TradeOff& trade : of_least) {
    EXPECT_GT(trade.arena_bytes, least.plan().arena_bytes());
    EXPECT_LT(trade.flops_step, least.plan().flops_step());
  }
  PlanSearch middle = SearchOf(
      model,
      Auto((none.plan().arena_bytes() + least.plan().arena_bytes()) / 2));
  const std::vector<TradeOff> of_middle = middle.TradeOffs();
  ExpectTrue(model, middle.plan(), of_middle);
  ASSERT_EQ(of_middle.size(), 3u);
  EXPECT_LT(of_middle[1].arena_bytes, middle.plan().arena_bytes());
  EXPECT_GT(of_middle[1].flops_step, middle.plan().flops_step());
  EXPECT_GT(of_middle[2].arena_bytes, middle.plan().arena_bytes());
  EXPECT_LT(of_middle[2].flops_step, middle.plan().flops_step());
}

TEST(TradeOffs, TellWhatANamedStrategyWastes) {
  const Model model = ModelOf("wrn-16-1", 16);
  PlanSearch named = SearchOf(model, {.threads = 2, .recompute = "every-4"});
  const Plan chosen = *MakePlan(model, Auto(named.plan().arena_bytes()));
  ASSERT_LT(chosen.flops_step(), named.plan().flops_step() * 98 / 100);
  const std::vector<TradeOff> trade_offs = named.TradeOffs();
  ExpectTrue(model, named.plan(), trade_offs);
  EXPECT_TRUE(std::any_of(trade_offs.begin(), trade_offs.end(),
                          [&](const TradeOff& trade) {
                            return trade.arena_bytes == chosen.arena_bytes() &&
                                   trade.flops_step == chosen.flops_step();
                          }));
}

TEST(TradeOffs, StayAtTheMicrobatchThatWasChosen) {
  const Model model = ModelOf("wrn-10-1", 32);
  PlanOptions half = Auto(0);
  half.microbatch = 16;
  PlanOptions options = Auto(LeastOf(model, half));
  options.allow_microbatch = true;
  PlanSearch search = SearchOf(model, options);
  ASSERT_EQ(search.plan().microbatch(), 16);
  const std::vector<TradeOff> trade_offs = search.TradeOffs();
  EXPECT_FALSE(trade_offs.empty());
  ExpectTrue(model, search.plan(), trade_offs);
  PlanOptions evaluation;
  evaluation.training = false;
  EXPECT_TRUE(SearchOf(model, evaluation).TradeOffs().empty());
}

}  // namespace
}  // namespace thimble::testing
