// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "commands.h"
#include "options.h"
#include "thimble/plan_search.h"
#include "thimble/report.h"
#include "words.h"

namespace thimble::cli {
namespace {

struct PlanCommandFlags {
  PlanFlags plan;
  DataFlags data;
  bool json = false;
  bool explain = false;
  std::string html;
};

// What does not fit has no trade-offs: the refusal says what would.
void PrintPlan(PlanSearch& search, std::optional<uint64_t> budget, bool json) {
  const Plan& plan = search.plan();
  std::vector<TradeOff> trade_offs;
  if (search.fits()) trade_offs = search.TradeOffs();
  if (!json) {
    std::fputs((PlanTable(plan) + TradeOffLines(plan, trade_offs)).c_str(),
               stdout);
    return;
  }
  std::vector<std::string> options;
  options.reserve(trade_offs.size());
  for (const TradeOff& trade : trade_offs) {
    options.push_back(OptionsText(plan, trade));
  }
  std::printf("%s\n", PlanJson(plan, budget, trade_offs, options).c_str());
}

int Run(const PlanCommandFlags& flags) {
  auto budget = ParseBudget(flags.plan.budget);
  if (!budget.ok()) return Report(budget.status());
  auto data = OpenTrainingData(flags.plan.model, flags.data);
  if (!data.ok()) return Report(data.status());
  auto model = MakeModel(flags.plan, *data);
  if (!model.ok()) return Report(model.status());
  auto search =
      PlanSearch::Create(*model, MakePlanOptions(flags.plan, *budget));
  if (!search.ok()) return Report(search.status());
  // Before anything is printed, so that what is printed is the whole answer.
  // A plan over the budget is drawn too: the picture shows what is too large.
  if (!flags.html.empty()) {
    const Status written = WritePlanHtml(search->plan(), *budget, flags.html);
    if (!written.ok()) return Report(written);
  }
  if (flags.explain) {
    std::fputs(search->plan().Explain().c_str(), stdout);
  } else {
    PrintPlan(*search, *budget, flags.json);
  }
  return ReportUnlessFits(*search, !flags.plan.precision.empty());
}

}  // namespace

Command AddPlanCommand(CLI::App& app) {
  auto flags = std::make_shared<PlanCommandFlags>();
  CLI::App* command = app.add_subcommand(
      "plan", "What training will take, before anything runs");
  AddPlanFlags(*command, flags->plan);
  AddDataFlags(*command, flags->data, /*required=*/false);
  CLI::Option* json = command->add_flag("--json", flags->json,
                                        "One JSON object, sizes in bytes");
  command
      ->add_flag("--explain", flags->explain,
                 "Every op and every buffer with its offset and life")
      ->excludes(json);
  command
      ->add_option("--html", flags->html,
                   "Also writes a page that shows every buffer over time")
      ->type_name("FILE")
      ->check(CheckNotEmpty);
  command->footer(
      "Example:\n  thimble plan cnn --batch 256 --budget 20MB --json\n"
      "  thimble plan wrn-28-2 --budget 30MB --allow microbatch\n"
      "  thimble plan wrn-28-2 --html plan.html");
  return [flags] { return Run(*flags); };
}

}  // namespace thimble::cli
