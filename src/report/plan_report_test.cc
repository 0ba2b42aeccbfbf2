// SPDX-License-Identifier: Apache-2.0
#include "report/plan_report.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/test_folder.h"
#include "graph/test_op.h"
#include "report/markup.h"
#include "report/output_file.h"
#include "thimble/report.h"

namespace thimble {
namespace {

// A plan of made-up numbers: one op, three buffers of which one is over before
// the peak.
PlanParts SmallParts() {
  PlanParts parts;
  parts.model = "small";
  parts.graph.AddAxis("sentences", 8);
  parts.parameters = {
      {parts.graph.AddValue("w", {{100}, DType::kF32}, Role::kParameter),
       {},
       {}}};
  for (const char* name : {"early", "peak"}) {
    const auto made = parts.graph.AddOp(
        name, std::make_shared<testing::TestOp>(testing::TestOpTraits{}), {});
    EXPECT_TRUE(made.ok());
  }
  parts.schedule = {{OpId{0}, Phase::kMicrobatch, {}, false},
                    {OpId{1}, Phase::kMicrobatch, {}, false}};
  parts.buffers = {
      {"w", Role::kParameter, 448, 0, {0, 2}},
      {"gone", Role::kActivation, 9600, 448, {0, 1}},
      {"late", Role::kActivation, 640, 448, {1, 2}},
      {"scratch", Role::kWorkspace, 912, 1088, {1, 2}},
  };
  parts.batch = 8;
  parts.microbatch = 8;
  parts.arena_bytes = 2010;
  parts.lower_bound = 2000;
  parts.peak_time = 1;
  const auto at_peak = [&](Role role) -> size_t& {
    return parts.peak_bytes[static_cast<size_t>(role)];
  };
  at_peak(Role::kParameter) = 448;
  at_peak(Role::kGradient) = 1;
  at_peak(Role::kOptimizerState) = 2;
  at_peak(Role::kActivation) = 600;
  at_peak(Role::kActivationGradient) = 40;
  at_peak(Role::kWorkspace) = 900;
  at_peak(Role::kInput) = 5;
  at_peak(Role::kStatistic) = 4;
  parts.flops_step = 1'500'000;
  parts.flops_recompute = 300'000;
  return parts;
}

std::string JsonOf(PlanParts parts, std::optional<uint64_t> budget = {}) {
  return PlanJson(Plan(std::move(parts)), budget);
}

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(PlanJson, SharesAreTheBytesOfTheirRolesAtThePeak) {
  const std::string json = JsonOf(SmallParts());
  EXPECT_TRUE(json.starts_with(
      R"({"model":"small","parameters":100,"batch":8,"microbatch":8,)"))
      << json;
  const std::string beside =
      std::to_string(BesideArenaBytes(Plan(SmallParts())));
  EXPECT_TRUE(
      Has(json, R"("bytes":{"arena":2010,"lower_bound":2000,"model":448,)"
                R"("optimizer":3,"activation":640,"workspace":900,"input":5,)"
                R"("statistics":4,"beside_arena":)" +
                    beside + "}"))
      << json;
  EXPECT_TRUE(Has(json, R"("peak_op":"peak")")) << json;
}

TEST(PlanJson, TheRatioOfFlopsIsOverThoseDoneOnce) {
  EXPECT_TRUE(
      Has(JsonOf(SmallParts()),
          R"("flops":{"step":1500000,"recompute":300000,"ratio":1.25})"));
  PlanParts none = SmallParts();
  none.flops_step = none.flops_recompute = 0;
  EXPECT_TRUE(Has(JsonOf(none), R"("ratio":1.0})"));
}

TEST(PlanJson, FitsComparesTheArenaWithTheBudget) {
  EXPECT_TRUE(Has(JsonOf(SmallParts()), R"("fits":true)"));
  EXPECT_TRUE(Has(JsonOf(SmallParts(), 2010), R"("fits":true)"));
  EXPECT_TRUE(Has(JsonOf(SmallParts(), 2009), R"("fits":false)"));
}

TEST(PlanJson, WhatThereIsNotIsNull) {
  const std::string json = JsonOf(SmallParts());
  EXPECT_TRUE(Has(json, R"("ghost_batch":null)")) << json;
  EXPECT_TRUE(Has(json, R"("paper_bytes":null,"paper_flops_ratio":null)"))
      << json;
  EXPECT_FALSE(Has(json, "trade_offs")) << json;
  PlanParts more = SmallParts();
  more.options.ghost_batch = 4;
  more.paper = PaperFigures{{1, 2, 3, 6}, 1.5};
  const std::string full = JsonOf(more);
  EXPECT_TRUE(Has(full, R"("ghost_batch":4,)")) << full;
  EXPECT_TRUE(Has(full,
                  R"("paper_bytes":{"model":1,"optimizer":2,"activation":3,)"
                  R"("total":6},"paper_flops_ratio":1.5)"))
      << full;
}

TEST(PlanJson, TradeOffsSayWhatTheCallerSaysOfThem) {
  const std::vector<TradeOff> trades = {
      {.options = {}, .arena_bytes = 1000, .flops_step = 1'800'000},
      {.options = {}, .arena_bytes = 1500, .flops_step = 1'500'001}};
  const std::vector<std::string> options = {"this", "that"};
  const std::string json =
      PlanJson(Plan(SmallParts()), std::nullopt, trades, options);
  EXPECT_TRUE(json.ends_with(
      R"("trade_offs":[{"arena":1000,"flops_step":1800000,"options":"this"},)"
      R"({"arena":1500,"flops_step":1500001,"options":"that"}]})"))
      << json;
}

TEST(PlanTable, HasTheNumbersOfThePlan) {
  const std::string table = PlanTable(Plan(SmallParts()));
  EXPECT_TRUE(
      table.starts_with("small: 100 parameters, batch 8, f32, 1 thread\n"))
      << table;
  for (const char* part :
       {"2.01 kB", "(arena +0.50%)", "at the peak, op 'peak'", "448 B  22.4%",
        "640 B  32.0%", "900 B  45.0%",
        "1.50 MFLOP per step, 187.50 kFLOP per sentence", "1.250 times"}) {
    EXPECT_TRUE(Has(table, part)) << part << " is not in\n" << table;
  }
  EXPECT_FALSE(Has(table, "gone")) << table;
  EXPECT_FALSE(Has(table, "trade-offs")) << table;
}

TEST(PlanTable, NamesHowAStepIsDividedAndWhatIsSwitchedOff) {
  PlanParts parts = SmallParts();
  parts.microbatch = 4;
  parts.options.ghost_batch = 2;
  parts.options.threads = 2;
  parts.options.inplace = false;
  parts.options.fuse = false;
  const std::string table = PlanTable(Plan(std::move(parts)));
  EXPECT_TRUE(Has(table,
                  "batch 8 in microbatches of 4, ghost batches of 2, f32, 2 "
                  "threads, nothing in place, nothing fused\n"))
      << table;
}

TEST(PlanTable, ControlCharactersOfNamesDoNotReachATerminal) {
  PlanParts parts = SmallParts();
  parts.model = "a\x1b[2J";
  parts.buffers[0].name = "b\n";
  const std::string table = PlanTable(Plan(std::move(parts)));
  EXPECT_FALSE(Has(table, "\x1b")) << table;
  EXPECT_TRUE(Has(table, "b?")) << table;
}

TEST(LiveAtPeak, ListsTheLargestFirst) {
  const Plan plan(SmallParts());
  std::vector<std::string> names;
  for (const Buffer* b : report::LiveAtPeak(plan)) names.push_back(b->name);
  EXPECT_EQ(names, std::vector<std::string>({"scratch", "late", "w"}));
}

TEST(FlopsText, ChoosesTheUnit) {
  PlanParts parts = SmallParts();
  parts.flops_step = 999;
  EXPECT_EQ(report::FlopsText(Plan(parts)),
            "999.00 FLOP per step, 124.88 FLOP per sentence");
  parts.flops_step = 8'000'000'000'000;
  EXPECT_EQ(report::FlopsText(Plan(parts)),
            "8.00 TFLOP per step, 1.00 TFLOP per sentence");
}

TEST(Escaped, IsSafeInTextAndInAttributes) {
  EXPECT_EQ(report::Escaped("a<b>&\"c\"\n\x01z"),
            "a&lt;b&gt;&amp;&quot;c&quot;  z");
  EXPECT_EQ(report::Escaped("ü"), "ü");
}

TEST(CreateOutputFile, RefusesWhatIsNoFile) {
  const TestFolder folder;
  ASSERT_TRUE(report::CreateOutputFile(folder.File("new.html")).ok());
  WriteTestFile(folder.File("old.html"), "old");
  EXPECT_TRUE(report::CreateOutputFile(folder.File("old.html")).ok());
  EXPECT_EQ(ReadTestFile(folder.File("old.html")), "old");
  ASSERT_EQ(mkdir(folder.File("folder").c_str(), 0777), 0);
  EXPECT_FALSE(report::CreateOutputFile(folder.File("folder")).ok());
  ASSERT_EQ(symlink("old.html", folder.File("link").c_str()), 0);
  EXPECT_FALSE(report::CreateOutputFile(folder.File("link")).ok());
  EXPECT_FALSE(report::CreateOutputFile(folder.File("none/new.html")).ok());
}

}  // namespace
}  // namespace thimble
