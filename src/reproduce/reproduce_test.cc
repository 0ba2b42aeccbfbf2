// SPDX-License-Identifier: Apache-2.0
#include "thimble/reproduce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "reproduce/chen.h"
#include "reproduce/figures.h"
#include "reproduce/printed.h"
#include "thimble/model.h"
#include "thimble/plan.h"

namespace thimble::reproduce {
namespace {

constexpr const char* kNames[] = {"fig1", "fig5", "table3", "chen-resnet",
                                  "chen-lstm"};

Reproduction Quick(const std::string& name) {
  auto made = Reproduce(name, {.quick = true, .memory_only = true});
  EXPECT_TRUE(made.ok()) << made.status().message();
  return made.ok() ? *made : Reproduction();
}

const ReproductionRow& RowOf(const Reproduction& r, const std::string& label) {
  for (const ReproductionRow& row : r.rows) {
    if (row.label == label) return row;
  }
  ADD_FAILURE() << "no row " << label;
  static const ReproductionRow none{
      {}, std::vector<std::optional<double>>(9), {}};
  return none;
}

// The cell as the paper would print it.
double Rounded(std::optional<double> cell, int decimals) {
  const double scale = std::pow(10, decimals);
  return cell.has_value() ? std::round(*cell * scale) / scale : -1;
}

size_t ArenaOf(const std::string& name, const ModelOptions& model_options,
               const PlanOptions& options) {
  auto model = BuildModel(name, model_options);
  EXPECT_TRUE(model.ok());
  auto plan = MakePlan(*model, options);
  EXPECT_TRUE(plan.ok());
  return plan->arena_bytes();
}

size_t WrnArena(const std::string& strategy, int64_t microbatch) {
  return ArenaOf("wrn-28-2",
                 {.batch = 100, .images = PresetOf("wrn-28-2").images},
                 {.optimizer = SohoniOptimizer(),
                  .threads = 2,
                  .microbatch = microbatch,
                  .recompute = strategy});
}

TEST(Reproduce, UnknownNamesAreRefusedWithTheList) {
  const auto made = Reproduce("fig7", {});
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().code(), StatusCode::kUsage);
  for (const char* name : kNames) {
    EXPECT_NE(made.status().message().find(name), std::string::npos) << name;
  }
  EXPECT_EQ(ReproductionNames().size(), std::size(kNames));
}

TEST(Reproduce, TablesWithAccuraciesAskForMemoryOnly) {
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

TEST(Reproduce, Table3HasThePapersRowsToEveryDigit) {
  const Reproduction table = Quick("table3");
  ASSERT_GE(table.rows.size(), std::size(kSohoniTable3));
  for (size_t i = 0; i < std::size(kSohoniTable3); ++i) {
    const ReproductionRow& row = table.rows[i];
    EXPECT_EQ(*row.cells[0], kSohoniTable3[i].total_mb);
    // Its own digits agree, as far as they go.
    EXPECT_NEAR(kSohoniWrnTotalMb / *row.cells[0], *row.cells[1],
                *row.cells[1] * 0.06 / *row.cells[0]);
    EXPECT_TRUE(row.cells[4].has_value()) << row.label;
    EXPECT_TRUE(row.cells[6].has_value()) << row.label;
    EXPECT_EQ(Rounded(row.cells[2], 1), *row.cells[0]);
    // The reductions that it prints have another digit.
    EXPECT_NEAR(*row.cells[3], *row.cells[1], 0.051) << row.label;
    EXPECT_FALSE(row.notes.empty()) << row.label;
  }
  const ReproductionRow& f32 =
      RowOf(table, "f32, residual-2*, microbatch 10, 100% nonzero");
  EXPECT_FALSE(f32.cells[7].has_value());
  EXPECT_FALSE(f32.cells[0].has_value());
  EXPECT_EQ(*f32.cells[4], Mb(WrnArena("residual-2*", 10)));
}

// All that is allocated, in the bytes that the paper counts for less.
TEST(Reproduce, Table3FitsItsF16RowsIntoThePapersBytes) {
  const Reproduction table = Quick("table3");
  for (const char* microbatch : {"100", "10"}) {
    SCOPED_TRACE(microbatch);
    const ReproductionRow& row =
        RowOf(table, std::string("f16, residual-2*, microbatch ") + microbatch +
                         ", 100% nonzero");
    const ModelOptions model{.batch = 100,
                             .images = PresetOf("wrn-28-2").images};
    PlanOptions options{.optimizer = SohoniOptimizer(),
                        .precision = Precision::All(DType::kF16),
                        .threads = 2,
                        .microbatch = std::stoi(microbatch),
                        .recompute = "residual-2*"};
    EXPECT_EQ(*row.cells[4], Mb(ArenaOf("wrn-28-2", model, options)));
    options.recompute = "auto";
    options.budget = static_cast<uint64_t>(std::llround(*row.cells[0] * 1e6));
    EXPECT_EQ(*row.cells[7], Mb(ArenaOf("wrn-28-2", model, options)));
    EXPECT_LE(*row.cells[7], *row.cells[0]);
    EXPECT_LE(*row.cells[8], 1.25);
    EXPECT_GT(*row.cells[6], 1.25);  // what residual-2* runs
  }
  // To one digit more than the paper prints.
  EXPECT_EQ(Rounded(table.rows[1].cells[2], 2), 42.60);
  EXPECT_EQ(Rounded(table.rows[2].cells[2], 2), 12.19);
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

// Everything that is allocated, in the bytes that the paper counts for less.
TEST(Reproduce, Table3FitsItsSparseRowsIntoThePapersBytes) {
  const Reproduction table = Quick("table3");
  int sparse = 0;
  for (size_t i = 0; i < std::size(kSohoniTable3); ++i) {
    if (kSohoniTable3[i].nonzero_percent == 100) continue;
    const ReproductionRow& row = table.rows[i];
    ASSERT_TRUE(row.cells[7].has_value()) << row.label;
    EXPECT_LE(*row.cells[7], *row.cells[0]) << row.label;
    EXPECT_LE(*row.cells[8], 1.30) << row.label;
    ++sparse;
  }
  EXPECT_EQ(sparse, 4);
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
