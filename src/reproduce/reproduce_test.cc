// SPDX-License-Identifier: Apache-2.0
#include "thimble/reproduce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "reproduce/chen.h"
#include "reproduce/figures.h"
#include "reproduce/test_figures.h"
#include "thimble/model.h"
#include "thimble/plan.h"

namespace thimble::reproduce {
namespace {

constexpr const char* kNames[] = {"fig1", "fig5", "table3", "chen-resnet",
                                  "chen-lstm"};

TEST(Reproduce, UnknownNamesAreRefusedWithTheList) {
  const auto made = Reproduce("fig7", {});
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().code(), StatusCode::kUsage);
  for (const char* name : kNames) {
    EXPECT_NE(made.status().message().find(name), std::string::npos) << name;
  }
  EXPECT_EQ(ReproductionNames().size(), std::size(kNames));
}

TEST(Reproduce, WhatOnlyTrainingTellsIsAskedOfTheCaller) {
  const auto made = Reproduce("table3", {});
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().code(), StatusCode::kUsage);
  EXPECT_NE(made.status().message().find("ReproduceOptions::memory_only"),
            std::string::npos);
}

TEST(Reproduce, EveryRowHasACellForEachColumnAndKnownNotes) {
  for (const char* name : kNames) {
    SCOPED_TRACE(name);
    const Reproduction r = Quick(name);
    EXPECT_EQ(r.name, name);
    EXPECT_FALSE(r.rows.empty());
    for (const ReproductionRow& row : r.rows) {
      EXPECT_EQ(row.cells.size(), r.columns.size()) << row.label;
      for (size_t note : row.notes) EXPECT_LT(note, r.notes.size());
    }
  }
}

TEST(Reproduce, Figure1AddsUpByThePapersRuleAndInTheArena) {
  const Reproduction figure = Quick("fig1");
  const ReproductionRow& total = RowOf(figure, "total");
  EXPECT_EQ(Rounded(total.cells[1], 1), *total.cells[0]);  // 404.8
  double rule = 0;
  double peak = 0;
  for (const char* part : {"model", "optimizer", "activations", "workspace",
                           "input", "statistics"}) {
    const ReproductionRow& row = RowOf(figure, part);
    rule += row.cells[1].value_or(0);
    peak += row.cells[3].value_or(0);
  }
  EXPECT_NEAR(rule, *total.cells[1], 1e-6);  // half a byte
  EXPECT_LE(peak, *total.cells[3] + 1e-6);
  EXPECT_EQ(*total.cells[3], Mb(WrnArena("none", 100)));
}

TEST(Reproduce, Figure5HasThePapersDigitsByItsRule) {
  const Reproduction figure = Quick("fig5");
  const ReproductionRow& d = RowOf(figure, "(D) residual-2*");
  EXPECT_EQ(Rounded(d.cells[3], 1), *d.cells[0]);
  // "a 30% increase": 1.31 to the digit before.
  EXPECT_EQ(Rounded(d.cells[4], 1), *d.cells[1]);
  // Elements per image times 4 bytes times 100 images.
  const std::pair<const char*, int64_t> elements[] = {
      {"(A) none", 968'192},
      {"(B) no-bn", 486'656},
      {"(C) residual-1*", 249'088},
      {"(D) residual-2*", 167'936}};
  for (const auto& [label, count] : elements) {
    EXPECT_EQ(*RowOf(figure, label).cells[2], Mb(count * 400)) << label;
  }
  EXPECT_EQ(*d.cells[5], Mb(WrnArena("residual-2*", 100)));
}

TEST(Reproduce, ChenResnetIsThePlansArenaAndShrinksStepByStep) {
  const Reproduction figure = Quick("chen-resnet");
  const std::string name = "resnet-imagenet-50";
  const PlanOptions sublinear{.optimizer = SohoniOptimizer(),
                              .threads = 2,
                              .fuse = false,
                              .recompute = "sqrt"};
  const ModelOptions model{
      .batch = 32, .images = PresetOf(name).images, .classes = 1000};
  EXPECT_EQ(*RowOf(figure, name + ", + sublinear").cells[3],
            Gb(ArenaOf(name, model, sublinear)));
  PlanOptions fused = sublinear;
  fused.fuse = true;
  EXPECT_EQ(*RowOf(figure, name + ", sublinear, fused ops").cells[3],
            Gb(ArenaOf(name, model, fused)));
  const char* steps[] = {"none", "in place", "+ sharing", "+ drop BN and ReLU",
                         "+ sublinear"};
  for (size_t i = 1; i < std::size(steps); ++i) {
    const auto bytes = [&](size_t k) {
      return *RowOf(figure, name + ", " + steps[k]).cells[2];
    };
    EXPECT_LT(bytes(i), bytes(i - 1)) << steps[i];
  }
}

TEST(Reproduce, ChenLstmComparesTheSublinearPlanWithTheLinearOne) {
  const Reproduction figure = Quick("chen-lstm");
  const std::string name = "lstm-4-1024-20";
  const ReproductionRow& sublinear = RowOf(figure, name + ", + sublinear");
  const ReproductionRow& linear = RowOf(figure, name + ", + sharing");
  EXPECT_EQ(*sublinear.cells[1], *linear.cells[2] / *sublinear.cells[2]);
  const ModelOptions model{
      .batch = 64, .images = PresetOf(name).images, .classes = 5000};
  // Nothing in it fuses, so that the ablation needs no step for it.
  for (bool fuse : {false, true}) {
    const PlanOptions options{
        .optimizer = SohoniOptimizer(), .threads = 2, .fuse = fuse};
    EXPECT_EQ(*linear.cells[3], Gb(ArenaOf(name, model, options)));
  }
}

TEST(Reproduce, WithoutSharingEveryBufferOfTrainingCounts) {
  auto model = BuildModel("cnn", {.batch = 4});
  ASSERT_TRUE(model.ok());
  for (bool inplace : {false, true}) {
    auto plan = MakePlan(
        *model,
        {.optimizer = SohoniOptimizer(), .fuse = false, .inplace = inplace});
    ASSERT_TRUE(plan.ok());
    uint32_t training = 0;
    for (const ScheduledOp& op : plan->schedule()) {
      if (op.phase != Phase::kEvaluate) ++training;
    }
    size_t sum = 0;
    for (const Buffer& b : plan->buffers()) {
      if (b.live.begin < training) sum += b.bytes;
    }
    const auto bytes =
        MeasureAblation(*model, {"", "none", false, inplace, false}, 1);
    ASSERT_TRUE(bytes.ok());
    EXPECT_EQ(bytes->arena, sum);
    EXPECT_GT(bytes->arena, plan->arena_bytes());
    EXPECT_LT(bytes->feature_maps, bytes->arena);
  }
}

// Fields of a line of CSV; quotes are taken off.
std::vector<std::string> Fields(const std::string& line) {
  std::vector<std::string> fields(1);
  bool is_quoted = false;
  for (char c : line) {
    if (c == '"') {
      is_quoted = !is_quoted;
    } else if (c == ',' && !is_quoted) {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  EXPECT_FALSE(is_quoted) << line;
  return fields;
}

TEST(Reproduce, CsvHasTheTablesNumbers) {
  const Reproduction r = Quick("fig5");
  const std::string csv = ReproductionCsv(r);
  size_t row = 0;
  size_t begin = csv.find('\n') + 1;
  EXPECT_EQ(Fields(csv.substr(0, begin - 1)).size(), r.columns.size() + 2);
  for (; begin < csv.size(); ++row) {
    const size_t end = csv.find('\n', begin);
    const auto fields = Fields(csv.substr(begin, end - begin));
    begin = end + 1;
    ASSERT_LT(row, r.rows.size());
    ASSERT_EQ(fields.size(), r.columns.size() + 2);
    EXPECT_EQ(fields[0], r.rows[row].label);
    for (size_t c = 0; c < r.columns.size(); ++c) {
      const auto& cell = r.rows[row].cells[c];
      ASSERT_EQ(fields[c + 1].empty(), !cell.has_value());
      if (cell.has_value()) {
        EXPECT_NEAR(std::stod(fields[c + 1]), *cell, 5.1e-7);
      }
    }
  }
  EXPECT_EQ(row, r.rows.size());
}

TEST(Reproduce, JsonHasTheTablesNumbers) {
  Reproduction r;
  r.name = "few";
  r.title = "A \"few\"";
  r.columns = {{"MB", 1}, {"%", 0}};
  r.rows = {{"first", {1.25, {}}, {0, 1}}, {"second", {{}, 7}, {}}};
  r.notes = {"one", "two"};
  EXPECT_EQ(ReproductionJson(r),
            R"({"name":"few","title":"A \"few\"","columns":["MB","%"],)"
            R"("rows":[{"label":"first","cells":[1.250000,null],)"
            R"("notes":[1,2]},{"label":"second","cells":[null,7.000000],)"
            R"("notes":[]}],"notes":["one","two"]})");
}

TEST(Reproduce, TextShowsDashesAndNotes) {
  const std::string text = ReproductionText(Quick("table3"));
  EXPECT_NE(text.find(" - "), std::string::npos);
  EXPECT_NE(text.find("  [2] columns of sparse weights are packed"),
            std::string::npos);
  EXPECT_NE(text.find("404.8"), std::string::npos);
}

// As `plan` does: what is told is never less than what is taken.
TEST(Reproduce, ArenasAreRoundedUp) {
  const ReproductionColumn arena{"arena MB", 2, true, /*rounds_up=*/true};
  const ReproductionColumn other{"rule MB", 2};
  EXPECT_EQ(CellText(arena, 206.770001), "206.78");
  EXPECT_EQ(CellText(other, 206.770001), "206.77");
  EXPECT_EQ(CellText(arena, {}), "-");
  // What has no more digits stays as it is.
  for (int64_t hundredths = 0; hundredths < 100'000; hundredths += 7) {
    const std::string text =
        CellText(arena, Mb(static_cast<double>(hundredths) * 1e4));
    EXPECT_EQ(text, CellText(other, static_cast<double>(hundredths) / 100));
  }
  for (const char* name : {"fig1", "fig5", "table3"}) {
    const Reproduction r = Quick(name);
    bool found = false;
    for (const ReproductionColumn& column : r.columns) {
      const bool is_arena = column.head.find("arena") != std::string::npos &&
                            column.head.ends_with("MB");
      EXPECT_EQ(column.rounds_up, is_arena) << name << " " << column.head;
      found |= is_arena;
    }
    EXPECT_TRUE(found) << name;
  }
}

// Elements open and close in turn, and nothing is left unescaped.
void ExpectWellFormed(const std::string& xml) {
  std::vector<std::string> open;
  size_t roots = 0;
  for (size_t i = 0; i < xml.size();) {
    if (xml[i] == '&') {
      const std::string entity = xml.substr(i, xml.find(';', i) - i + 1);
      EXPECT_TRUE(entity == "&amp;" || entity == "&lt;" || entity == "&gt;")
          << entity;
    }
    if (xml[i] != '<') {
      ++i;
      continue;
    }
    const size_t end = xml.find('>', i);
    ASSERT_NE(end, std::string::npos);
    std::string tag = xml.substr(i + 1, end - i - 1);
    i = end + 1;
    EXPECT_EQ(tag.find('<'), std::string::npos) << tag;
    const std::string name = tag.substr(0, tag.find(' '));
    if (tag[0] == '/') {
      ASSERT_FALSE(open.empty());
      EXPECT_EQ(open.back(), tag.substr(1));
      open.pop_back();
    } else if (tag.back() != '/') {
      roots += open.empty() ? 1 : 0;
      open.push_back(name);
    }
  }
  EXPECT_TRUE(open.empty());
  EXPECT_EQ(roots, 1u);
}

TEST(Reproduce, SvgIsWellFormedFiniteAndSelfContained) {
  for (const char* name : kNames) {
    SCOPED_TRACE(name);
    Reproduction r = Quick(name);
    r.title += " <&>";
    const std::string svg = ReproductionSvg(r);
    ExpectWellFormed(svg);
    EXPECT_EQ(svg.find("nan"), std::string::npos);
    EXPECT_EQ(svg.find("inf"), std::string::npos);
    EXPECT_EQ(svg.find(">-0<"), std::string::npos);
    EXPECT_EQ(svg.find("href"), std::string::npos);
    const char* mark = r.lines.empty() ? "<rect" : "<polyline";
    EXPECT_NE(svg.find(mark), std::string::npos);
  }
}

}  // namespace
}  // namespace thimble::reproduce
