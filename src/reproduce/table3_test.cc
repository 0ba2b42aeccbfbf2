// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "reproduce/figures.h"
#include "reproduce/printed.h"
#include "reproduce/test_figures.h"
#include "thimble/model.h"
#include "thimble/plan.h"
#include "thimble/reproduce.h"

namespace thimble::reproduce {
namespace {

// Of each of the paper's rows, the plan that stands in it and that of `auto`.
TEST(Reproduce, Table3MeasuresWhatItPlans) {
  std::vector<RunToMeasure> runs;
  const auto made = Reproduce(
      "table3",
      {.measure = [&](const RunToMeasure& run) -> Result<MeasuredRun> {
        runs.push_back(run);
        const auto n = static_cast<int64_t>(runs.size());
        return MeasuredRun{.rss_bytes = n * 1'000'000,
                           .images_per_second = 100.0 + static_cast<double>(n)};
      }});
  ASSERT_TRUE(made.ok()) << made.status().message();
  const Reproduction planned = Quick("table3");
  ASSERT_EQ(made->columns.size(), planned.columns.size() + 4);
  const size_t rss = planned.columns.size();
  size_t next = 0;
  for (size_t i = 0; i < made->rows.size(); ++i) {
    const ReproductionRow& row = made->rows[i];
    SCOPED_TRACE(row.label);
    ASSERT_EQ(row.cells.size(), made->columns.size());
    EXPECT_TRUE(std::ranges::equal(planned.rows[i].cells,
                                   std::span(row.cells).first(rss)));
    const auto expect = [&](size_t cell) -> const RunToMeasure& {
      const RunToMeasure& run = runs.at(next++);
      EXPECT_EQ(*row.cells[cell], static_cast<double>(next));
      EXPECT_EQ(*row.cells[cell + 1], 100.0 + static_cast<double>(next));
      EXPECT_EQ(run.batch, 100);
      EXPECT_EQ(run.threads, 2);
      const PlanOptions options{.optimizer = SohoniOptimizer(),
                                .precision = Precision::All(run.dtype),
                                .sparse = run.sparse,
                                .threads = run.threads,
                                .microbatch = run.microbatch,
                                .recompute = run.recompute,
                                .budget = run.budget};
      const size_t arena = ArenaOf(
          run.model, {.batch = run.batch, .images = PresetOf(run.model).images},
          options);
      EXPECT_EQ(Mb(arena), *row.cells[cell == rss ? 4 : 7]);
      return run;
    };
    if (i >= std::size(kSohoniTable3)) {
      EXPECT_FALSE(row.cells[rss].has_value());
      continue;
    }
    EXPECT_FALSE(expect(rss).budget.has_value());
    EXPECT_EQ(row.cells[rss + 2].has_value(), row.cells[7].has_value());
    if (row.cells[7].has_value()) {
      EXPECT_EQ(expect(rss + 2).recompute, "auto");
    }
  }
  EXPECT_EQ(next, runs.size());
  EXPECT_EQ(runs.size(), 13u);
}

TEST(Reproduce, ARunThatCannotBeMeasuredEndsTheTable) {
  int runs = 0;
  const auto made = Reproduce(
      "table3", {.measure = [&](const RunToMeasure&) -> Result<MeasuredRun> {
        ++runs;
        return Status::Failed("no room");
      }});
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().message(), "no room");
  EXPECT_EQ(runs, 1);
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

}  // namespace
}  // namespace thimble::reproduce
