// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cmath>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "report/plan_report.h"
#include "reproduce/figures.h"
#include "reproduce/printed.h"
#include "thimble/model.h"

namespace thimble::reproduce {
namespace {

constexpr const char* kModel = "wrn-28-2";
constexpr int64_t kBatch = 100;

constexpr const char* kArenaNote =
    "arena: every byte that is allocated, with workspace, input and statistics;"
    " the paper counts none of these";

// A setting of table 3.
struct Setting {
  std::string recompute;
  int64_t microbatch = 0;
  DType dtype = DType::kF32;
  int nonzero_percent = 100;
  std::optional<IndexCodec> index = std::nullopt;  // unset: the smaller one
};

std::string SettingName(const Setting& setting) {
  return fmt::format("{}, {}, microbatch {}, {}% nonzero",
                     DTypeName(setting.dtype), setting.recompute,
                     setting.microbatch, setting.nonzero_percent);
}

SparseWeights SparseOf(const Setting& setting) {
  SparseWeights sparse;
  if (setting.nonzero_percent < 100) {
    sparse.nonzero = setting.nonzero_percent / 100.0;
    sparse.index = setting.index;
  }
  return sparse;
}

// Plans of the paper's network, which is built once.
class Planner {
 public:
  explicit Planner(const ReproduceOptions& options)
      : options_(options),
        model_(BuildModel(
            kModel, {.batch = kBatch, .images = PresetOf(kModel).images})) {}

  Result<Plan> Make(const Setting& setting,
                    std::optional<uint64_t> budget = std::nullopt) const {
    if (!model_.ok()) return model_.status();
    Tell(options_,
         fmt::format("planning {}, {}", kModel, SettingName(setting)));
    return MakePlan(*model_, {.optimizer = SohoniOptimizer(),
                              .precision = Precision::All(setting.dtype),
                              .sparse = SparseOf(setting),
                              .threads = options_.threads,
                              .microbatch = setting.microbatch,
                              .recompute = setting.recompute,
                              .budget = budget});
  }

  // REQUIRES: options.measure.
  Result<MeasuredRun> Measure(const Setting& setting,
                              std::optional<uint64_t> budget) const {
    Tell(options_,
         fmt::format("measuring {}, {}", kModel, SettingName(setting)));
    return options_.measure({.model = kModel,
                             .batch = kBatch,
                             .microbatch = setting.microbatch,
                             .dtype = setting.dtype,
                             .sparse = SparseOf(setting),
                             .threads = options_.threads,
                             .recompute = setting.recompute,
                             .budget = budget});
  }

 private:
  const ReproduceOptions& options_;
  Result<Model> model_;
};

std::optional<double> PaperMb(const Plan& plan,
                              int64_t PaperBytes::*what = &PaperBytes::total) {
  if (!plan.paper().has_value()) return std::nullopt;
  return Mb(plan.paper()->bytes.*what);
}

std::optional<double> Ratio(std::optional<double> a, std::optional<double> b) {
  if (!a.has_value() || !b.has_value()) return std::nullopt;
  return *a / *b;
}

// The columns of table 3.
enum Table3Cell : size_t {
  kPaperMb,
  kPaperSmaller,
  kRuleMb,
  kRuleSmaller,
  kArenaMb,
  kArenaSmaller,
  kArenaFlops,
  kBudgetMb,
  kBudgetFlops,
  // Not with memory_only.
  kRssMb,
  kSpeed,
  kBudgetRssMb,
  kBudgetSpeed,
};

// What the plan takes by the paper's rule and in the arena.
Status FillTable3Row(const Planner& planner, const Setting& setting,
                     ReproductionRow& row) {
  auto plan = planner.Make(setting);
  if (!plan.ok()) return plan.status();
  row.cells[kRuleMb] = PaperMb(*plan);
  row.cells[kArenaMb] = Mb(plan->arena_bytes());
  row.cells[kArenaFlops] = report::FlopsRatio(*plan);
  return Status::Ok();
}

// Asks for what a process takes that trains so.
Status FillMeasured(const Planner& planner, const Setting& setting,
                    std::optional<uint64_t> budget, Table3Cell rss,
                    Table3Cell speed, ReproductionRow& row) {
  TH_ASSIGN_OR_RETURN(const MeasuredRun run, planner.Measure(setting, budget));
  row.cells[rss] = Mb(run.rss_bytes);
  row.cells[speed] = run.images_per_second;
  return Status::Ok();
}

// What the least work takes in an arena of the bytes that the paper prints, if
// there is such a plan: many threads may need more.
Status FillBudget(const Planner& planner, Setting setting, bool measures,
                  ReproductionRow& row) {
  const auto budget =
      static_cast<uint64_t>(std::llround(*row.cells[kPaperMb] * 1e6));
  setting.recompute = "auto";
  const auto plan = planner.Make(setting, budget);
  if (!plan.ok()) return Status::Ok();
  row.cells[kBudgetMb] = Mb(plan->arena_bytes());
  row.cells[kBudgetFlops] = report::FlopsRatio(*plan);
  if (!measures) return Status::Ok();
  return FillMeasured(planner, setting, budget, kBudgetRssMb, kBudgetSpeed,
                      row);
}

// Of columns.
constexpr bool kUp = true;

constexpr const char* kIndexNote =
    "columns of sparse weights are packed, as the paper counts; a bitmap takes "
    "less";

// What table 3 says beside its rows.
Reproduction EmptyTable3(const ReproduceOptions& options) {
  Reproduction table;
  table.name = "table3";
  table.title =
      fmt::format("Sohoni et al., table 3: memory of training {}, batch {}",
                  kModel, kBatch);
  table.columns = {{"paper MB", 1},
                   {"paper: smaller", 1, false},
                   {"paper's rule MB", 2},
                   {"rule: smaller", 1, false},
                   {"arena MB", 2, true, kUp},
                   {"arena: smaller", 1, false},
                   {"FLOPs", 3, false},
                   {"auto in paper MB: arena MB", 2, true, kUp},
                   {"auto: FLOPs", 3, false}};
  table.notes = {
      "auto: the least work in an arena of the bytes that the paper prints",
      kIndexNote,
      "not in the paper's table: what f32 gives here with its other settings",
      kArenaNote, "FLOPs as executed over those with nothing computed twice"};
  if (options.memory_only) return table;
  for (ReproductionColumn column :
       {ReproductionColumn{"peak RSS MB", 2, true, kUp},
        {"images/s", 0, false},
        {"auto: peak RSS MB", 2, true, kUp},
        {"auto: images/s", 0, false}}) {
    table.columns.push_back(std::move(column));
  }
  table.notes.push_back(fmt::format(
      "peak RSS: the most bytes of a process that plans and trains this, from "
      "its start to its end, program and all; images/s with {} thread{}, in "
      "the few steps that were measured",
      options.threads, options.threads == 1 ? "" : "s"));
  return table;
}

}  // namespace

Result<Reproduction> Figure1(const ReproduceOptions& options) {
  auto plan = Planner(options).Make({"none", kBatch});
  if (!plan.ok()) return plan.status();
  Reproduction figure;
  figure.name = "fig1";
  figure.title = fmt::format(
      "Sohoni et al., figure 1: memory of training, {}, batch {}, f32", kModel,
      kBatch);
  figure.columns = {{"paper MB", 1},
                    {"paper's rule MB", 1},
                    {"paper's rule %", 1, /*is_drawn=*/false},
                    {"arena at its peak MB", 1, true, kUp}};
  figure.notes = {
      "figure 1 is a pie chart without digits; the total is that of table 3's "
      "first row",
      "not counted by the paper",
      "all that is allocated: the rows above and what placement could not "
      "avoid",
      "figure 1(b): Thimble has no DynamicConv transformer yet; the total is "
      "from table 4's caption"};
  const auto total = PaperMb(*plan);
  const auto add = [&](const std::string& label, int64_t PaperBytes::*what,
                       size_t arena, std::vector<size_t> notes) {
    const auto rule = what == nullptr ? std::nullopt : PaperMb(*plan, what);
    auto share = Ratio(rule, total);
    if (share.has_value()) *share *= 100;
    figure.rows.push_back(
        {label, {{}, rule, share, Mb(arena)}, std::move(notes)});
  };
  const auto at_peak = [&](Role role) { return plan->peak_bytes(role); };
  add("model", &PaperBytes::model, at_peak(Role::kParameter), {0});
  add("optimizer", &PaperBytes::optimizer,
      at_peak(Role::kGradient) + at_peak(Role::kOptimizerState), {0});
  add("activations", &PaperBytes::activation,
      at_peak(Role::kActivation) + at_peak(Role::kActivationGradient), {0});
  add("workspace", nullptr, at_peak(Role::kWorkspace), {1});
  add("input", nullptr, at_peak(Role::kInput), {1});
  add("statistics", nullptr, at_peak(Role::kStatistic), {1});
  add("total", &PaperBytes::total, plan->arena_bytes(), {0, 2});
  figure.rows.back().cells[0] = kSohoniWrnTotalMb;
  figure.rows.push_back(
      {"DynamicConv, total", {kSohoniDynamicConvTotalMb, {}, {}, {}}, {3}});
  return figure;
}

// What figure 5 says beside its rows.
Reproduction EmptyFigure5() {
  Reproduction figure;
  figure.name = "fig5";
  figure.title = fmt::format(
      "Sohoni et al., figure 5: FLOPs against memory of checkpoint "
      "strategies, {}, microbatch {}, f32",
      kModel, kBatch);
  figure.columns = {{"paper: activations smaller", 1},
                    {"paper: FLOPs", 2},
                    {"paper's rule: activations MB", 1},
                    {"rule: smaller", 2},
                    {"rule: FLOPs", 3},
                    {"arena MB", 1, true, kUp},
                    {"arena: smaller", 2},
                    {"FLOPs as executed", 3}};
  figure.notes = {
      "the figure has no digits; the text gives them for residual-2*",
      "the text says nearly 50% less for less than 1% more FLOPs",
      "fused plans never store these outputs, so the arena is that of none",
      kArenaNote};
  figure.x_axis = "MB";
  figure.y_axis = "FLOPs, none = 1";
  figure.lines = {{"activations by the paper's rule", {}}, {"arena", {}}};
  return figure;
}

Result<Reproduction> Figure5(const ReproduceOptions& options) {
  const Planner planner(options);
  Reproduction figure = EmptyFigure5();
  std::optional<double> baseline_rule;
  double baseline_arena = 0;
  struct Point {
    const char* letter;
    const char* recompute;
    std::vector<size_t> notes;
  };
  const Point points[] = {{"A", "none", {0, 3}},
                          {"B", "no-bn", {1, 2}},
                          {"C", "residual-1*", {0}},
                          {"D", "residual-2*", {0}}};
  for (const Point& point : points) {
    auto plan = planner.Make({point.recompute, kBatch});
    if (!plan.ok()) return plan.status();
    const auto rule = PaperMb(*plan, &PaperBytes::activation);
    const double arena = Mb(plan->arena_bytes());
    if (!baseline_rule.has_value()) {
      baseline_rule = rule;
      baseline_arena = arena;
    }
    ReproductionRow row{fmt::format("({}) {}", point.letter, point.recompute),
                        {{},
                         {},
                         rule,
                         Ratio(baseline_rule, rule),
                         plan->paper()->flops_ratio,
                         arena,
                         baseline_arena / arena,
                         report::FlopsRatio(*plan)},
                        point.notes};
    if (point.letter[0] == 'D') {
      row.cells[0] = kSohoniResidual2Reduction;
      row.cells[1] = kSohoniResidual2Flops;
    }
    figure.rows.push_back(std::move(row));
    figure.lines[0].points.emplace_back(*rule, plan->paper()->flops_ratio);
    figure.lines[1].points.emplace_back(arena, report::FlopsRatio(*plan));
  }
  return figure;
}

Result<Reproduction> Table3(const ReproduceOptions& options) {
  const bool measures = !options.memory_only;
  if (measures && !options.measure) {
    return Status::Usage(
        "table3 has what only training can tell, and nothing is given to "
        "measure it with; leave it out (ReproduceOptions::memory_only)");
  }
  const Planner planner(options);
  Reproduction table = EmptyTable3(options);
  // Microbatches to plan in f32 as well, with their strategy, each once.
  std::map<int, std::string, std::greater<>> in_f32;
  std::vector<std::optional<double>> baseline;
  const auto fill = [&](ReproductionRow& row, const Setting& setting) {
    Status status = FillTable3Row(planner, setting, row);
    if (baseline.empty()) baseline = row.cells;
    row.cells[kRuleSmaller] = Ratio(baseline[kRuleMb], row.cells[kRuleMb]);
    row.cells[kArenaSmaller] = Ratio(baseline[kArenaMb], row.cells[kArenaMb]);
    return status;
  };
  for (const SohoniTable3Row& printed : kSohoniTable3) {
    const Setting setting = {
        .recompute = printed.recompute,
        .microbatch = printed.microbatch,
        .dtype = printed.is_f16 ? DType::kF16 : DType::kF32,
        .nonzero_percent = printed.nonzero_percent,
        .index = IndexCodec::kPacked};
    ReproductionRow row;
    row.label = SettingName(setting);
    row.cells.resize(table.columns.size());
    row.cells[kPaperMb] = printed.total_mb;
    row.cells[kPaperSmaller] = printed.reduction;
    if (printed.is_f16) in_f32[printed.microbatch] = printed.recompute;
    row.notes =
        printed.is_f16 ? std::vector<size_t>{0} : std::vector<size_t>{3, 4};
    if (printed.nonzero_percent < 100) row.notes = {0, 1};
    TH_RETURN_IF_ERROR(fill(row, setting));
    if (measures) {
      row.notes.push_back(table.notes.size() - 1);
      TH_RETURN_IF_ERROR(
          FillMeasured(planner, setting, std::nullopt, kRssMb, kSpeed, row));
    }
    if (printed.is_f16) {
      TH_RETURN_IF_ERROR(FillBudget(planner, setting, measures, row));
    }
    table.rows.push_back(std::move(row));
  }
  for (const auto& [microbatch, strategy] : in_f32) {
    const Setting setting = {.recompute = strategy, .microbatch = microbatch};
    ReproductionRow row;
    row.label = SettingName(setting);
    row.cells.resize(table.columns.size());
    row.notes = {2};
    TH_RETURN_IF_ERROR(fill(row, setting));
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace thimble::reproduce
