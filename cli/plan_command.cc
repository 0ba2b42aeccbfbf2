// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <memory>

#include "commands.h"
#include "options.h"
#include "thimble/report.h"

namespace thimble::cli {
namespace {

struct PlanCommandFlags {
  PlanFlags plan;
  DataFlags data;
  bool json = false;
  bool explain = false;
};

int Run(const PlanCommandFlags& flags) {
  auto budget = ParseBudget(flags.plan.budget);
  if (!budget.ok()) return Report(budget.status());
  std::unique_ptr<Dataset> data;
  if (!flags.data.data.empty()) {
    auto opened = OpenData(flags.data);
    if (!opened.ok()) return Report(opened.status());
    data = *std::move(opened);
  }
  auto model = MakeModel(flags.plan, data.get());
  if (!model.ok()) return Report(model.status());
  auto plan = MakeClosestPlan(*model, MakePlanOptions(flags.plan, *budget));
  if (!plan.ok()) return Report(plan.status());
  if (flags.json) {
    std::printf("%s\n", PlanJson(*plan, *budget).c_str());
  } else if (flags.explain) {
    std::fputs(plan->Explain().c_str(), stdout);
  } else {
    std::fputs(PlanTable(*plan).c_str(), stdout);
  }
  if (!budget->has_value()) return 0;
  return Report(CheckBudget(*model, *plan, **budget));
}

}  // namespace

Command AddPlanCommand(CLI::App& app) {
  auto flags = std::make_shared<PlanCommandFlags>();
  CLI::App* command = app.add_subcommand(
      "plan", "What training will take, before anything runs");
  AddPlanFlags(*command, flags->plan);
  AddDataFlags(*command, flags->data, /*required=*/false);
  command->add_flag("--json", flags->json, "One JSON object, sizes in bytes");
  command->add_flag("--explain", flags->explain,
                    "Every op and every buffer with its offset and life");
  command->footer(
      "Example:\n  thimble plan cnn --batch 256 --budget 20MB --json");
  return [flags] { return Run(*flags); };
}

}  // namespace thimble::cli
