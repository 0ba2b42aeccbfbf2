// SPDX-License-Identifier: Apache-2.0
#include "train/rewirer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/test_folder.h"
#include "thimble/model.h"
#include "train/log.h"

namespace thimble::train {
namespace {

using Settings = std::map<std::string, std::string>;

// Six sparse weights of 73,728 elements.
Plan SparsePlan(PlanOptions options = {.sparse = {.nonzero = 0.3}}) {
  auto model = BuildModel(
      "wrn-10-1",
      {.batch = 4, .images = {.channels = 3, .height = 32, .width = 32}});
  EXPECT_TRUE(model.ok());
  auto plan = MakePlan(*model, options);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return *std::move(plan);
}

Rewirer Made(const RewiringOptions& options, const Plan& plan) {
  auto rewirer = Rewirer::Make(options, plan);
  EXPECT_TRUE(rewirer.ok()) << rewirer.status().message();
  return *std::move(rewirer);
}

std::vector<int64_t> StepsOf(const Rewirer& rewirer, const RunLength& length) {
  std::vector<int64_t> steps;
  for (int64_t step = 0; step < length.steps; ++step) {
    if (rewirer.Due(step, length, rewirer.Begin())) steps.push_back(step);
  }
  return steps;
}

TEST(Rewirer, IsOffWithoutSparseWeightsOrAMethod) {
  for (const Rewirer& rewirer :
       {Made({.every = 1}, SparsePlan({})),
        Made({.method = std::nullopt}, SparsePlan())}) {
    EXPECT_FALSE(rewirer.is_on());
    EXPECT_EQ(rewirer.Settings(), Settings());
    EXPECT_TRUE(StepsOf(rewirer, {10, 5}).empty());
  }
}

TEST(Rewirer, IsDueAsOptionsOrTheReportSay) {
  const Plan plan = SparsePlan();
  EXPECT_EQ(StepsOf(Made({.every = 4}, plan), {13, 5}),
            (std::vector<int64_t>{4, 8, 12}));
  // At 0.3 half as often as each 100 steps, and then each 200 …
  EXPECT_EQ(StepsOf(Made({}, plan), {4000, 20}),
            (std::vector<int64_t>{200, 400, 800, 1200, 1600, 2400, 3200}));
}

TEST(Rewirer, PrunesWhatOptionsOrTheReportSay) {
  const Plan plan = SparsePlan();
  const int64_t kept = plan.sparse()->layout.kept();
  const auto due = [&](const RewiringOptions& options) {
    const Rewirer rewirer = Made(options, plan);
    return *rewirer.Due(4, {10, 5}, {.threshold = 0.25});
  };
  // Twice 1.377866 % of all positions.
  EXPECT_EQ(due({.every = 4}).target, std::llround(2 * 0.01377866 * 73'728));
  const RewireOptions share = due({.every = 4, .prune = 0.125});
  EXPECT_EQ(share.target, kept / 8);
  EXPECT_EQ(share.method, RewireMethod::kDsr);
  EXPECT_EQ(share.threshold, 0.25f);
  EXPECT_EQ(share.reset, StateReset::kWhole);
  const RewireOptions set = due({.method = RewireMethod::kSet,
                                 .every = 4,
                                 .reset = StateReset::kNewBlocks});
  EXPECT_EQ(set.method, RewireMethod::kSet);
  EXPECT_EQ(set.fraction, 0.3);
  EXPECT_EQ(set.reset, StateReset::kNewBlocks);
  EXPECT_EQ(
      due({.method = RewireMethod::kSet, .every = 4, .prune = 0.5}).fraction,
      0.5);
}

TEST(Rewirer, KeepsItsThresholdForTheNextTime) {
  const Plan plan = SparsePlan();
  const Rewirer dsr = Made({.every = 4}, plan);
  RewiringState state = dsr.Begin();
  EXPECT_EQ(state.threshold, 1e-3);
  dsr.Done({.pruned = 1, .threshold = 0.5f}, &state);
  EXPECT_EQ(state.threshold, 0.5);
  EXPECT_EQ(state.rewirings, 1);
  EXPECT_EQ(dsr.Due(4, {10, 5}, state)->threshold, 0.5f);
  const Rewirer set = Made({.method = RewireMethod::kSet, .every = 4}, plan);
  set.Done({.pruned = 1, .threshold = 0.25f}, &state);
  EXPECT_EQ(state.threshold, 0.5);
  EXPECT_EQ(state.rewirings, 2);
}

TEST(Rewirer, TellsEverySettingThatDecidesBits) {
  const Plan plan = SparsePlan();
  EXPECT_EQ(Made({}, plan).Settings(),
            (Settings{{"rewiring", "dsr"},
                      {"rewiring every", "schedule times 0.5"},
                      {"rewiring prunes", "2032 blocks"},
                      {"rewiring resets", "all state"}}));
  const Settings set = Made({.method = RewireMethod::kSet,
                             .every = 7,
                             .prune = 0.25,
                             .reset = StateReset::kNewBlocks},
                            plan)
                           .Settings();
  EXPECT_EQ(set, (Settings{{"rewiring", "set"},
                           {"rewiring every", "7 steps"},
                           {"rewiring prunes", "0.25"},
                           {"rewiring resets", "state of new blocks"}}));
  for (const auto& [name, value] : set) {
    EXPECT_TRUE(name.starts_with(Rewirer::kSettings)) << name;
  }
}

TEST(Rewirer, RefusesWhatMakesNoSense) {
  const auto says = [](const RewiringOptions& options) {
    const Status status = Rewirer::Check(options);
    EXPECT_EQ(status.code(), StatusCode::kUsage);
    return status.message();
  };
  EXPECT_TRUE(Rewirer::Check({}).ok());
  EXPECT_TRUE(says({.every = -1}).starts_with("weights cannot be rewired"));
  for (const double prune : {-0.1, 1.0, std::nan("")}) {
    EXPECT_TRUE(says({.prune = prune}).starts_with("the share that a rewiring"))
        << prune;
  }
  for (const RewiringOptions& options :
       {RewiringOptions{.method = std::nullopt, .every = 3},
        RewiringOptions{.method = std::nullopt, .prune = 0.1},
        RewiringOptions{.method = std::nullopt,
        .reset = StateReset::kNewBlocks}}) {
    EXPECT_TRUE(says(options).starts_with("a fixed pattern is not rewired"));
  }
  const Plan u8 = SparsePlan(
      {.optimizer = Sgd({.state = U8InBlocks()}), .sparse = {.nonzero = 0.3}});
  EXPECT_TRUE(Rewirer::Make({}, u8).ok());
  const auto moved = Rewirer::Make({.reset = StateReset::kNewBlocks}, u8);
  ASSERT_FALSE(moved.ok());
  EXPECT_TRUE(moved.status().message().starts_with("optimizer state in 8 bits"))
      << moved.status().message();
}

TEST(Rewirer, HasALineOfItsOwnInTheLog) {
  const TestFolder folder;
  auto log = Log::Open(folder.File("log"), /*append=*/false);
  ASSERT_TRUE(log.ok());
  const std::vector<int64_t> kept = {7, 0, 12};
  log->Reserve(kept.size());
  log->Rewiring({.pruned = 5, .survivors = 14, .regrown = 1, .threshold = 0.5f},
                12, kept.size(), [&](size_t m) { return kept[m]; });
  EXPECT_EQ(ReadTestFile(folder.File("log")),
            R"({"event":"rewire","step":12,"pruned":5,"regrown":1,)"
            R"("threshold":0.5,"kept":[7,0,12]})"
            "\n");
}

}  // namespace
}  // namespace thimble::train
