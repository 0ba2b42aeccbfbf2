// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstdio>
#include <memory>

#include "commands.h"
#include "options.h"
#include "thimble/plan_search.h"
#include "thimble/size.h"
#include "thimble/text.h"
#include "thimble/trainer.h"
#include "words.h"

namespace thimble::cli {
namespace {

struct EvalCommandFlags {
  std::string from;
  DataFlags data;
  EvaluateOptions options{.batch = 100, .threads = 0, .budget = {}};
  std::string budget;
  bool json = false;
};

void PrintJson(const EvaluateSummary& summary) {
  std::printf("{\"model\":%s,%s:%lld,\"test_loss\":%s",
              JsonText(summary.model).c_str(), JsonText(summary.axis).c_str(),
              static_cast<long long>(summary.count),
              JsonNumber(summary.loss).c_str());
  for (const EvaluateSummary::Metric& metric : summary.metrics) {
    std::printf(",%s:%s", JsonText("test_" + metric.name).c_str(),
                JsonNumber(metric.value).c_str());
  }
  std::printf(",\"arena_bytes\":%llu,\"weights_sha256\":\"%s\"}\n",
              static_cast<unsigned long long>(summary.arena_bytes),
              summary.weights_sha256.c_str());
}

// "1 test image", "2 validation images": axes are plurals with an s.
std::string TestCount(const EvaluateSummary& summary, bool held_out) {
  const std::string axis = Printable(summary.axis);
  return Counted(summary.count, (held_out ? "validation " : "test ") +
                                    axis.substr(0, axis.size() - 1));
}

int Run(const EvalCommandFlags& flags) {
  auto budget = ParseBudget(flags.budget);
  if (!budget.ok()) return Report(budget.status());
  auto data = OpenData(flags.data);
  if (!data.ok()) return Report(data.status());
  EvaluateOptions options = flags.options;
  options.budget = *budget;
  options.threads = ThreadsOrDefault(options.threads);
  auto search = PlanEvaluation(flags.from, options);
  if (!search.ok()) return Report(search.status());
  if (const int code = ReportUnlessFits(*search); code != 0) return code;
  auto summary = Evaluate(flags.from, std::move(*search).Take(), **data);
  if (!summary.ok()) return Report(summary.status());
  if (flags.json) {
    PrintJson(*summary);
    return 0;
  }
  std::printf("%s on %s: ", Printable(summary->model).c_str(),
              TestCount(*summary, flags.data.validation > 0).c_str());
  for (const EvaluateSummary::Metric& metric : summary->metrics) {
    std::printf("%s %s, ", Printable(metric.name).c_str(),
                MetricText(metric.name, metric.value, metric.is_share).c_str());
  }
  char loss[64] = "the loss is not finite";
  if (std::isfinite(summary->loss)) {
    std::snprintf(loss, sizeof(loss), "loss %.4f", summary->loss);
  }
  std::printf("%s, arena %s\n", loss,
              FormatBytesUp(summary->arena_bytes).c_str());
  return 0;
}

}  // namespace

Command AddEvalCommand(CLI::App& app) {
  auto flags = std::make_shared<EvalCommandFlags>();
  CLI::App* command =
      app.add_subcommand("eval", "Test weights that `train --out` wrote");
  command->add_option("--from", flags->from, "The folder given to --out")
      ->required()
      ->check(CheckNotEmpty);
  AddDataFlags(*command, flags->data, /*required=*/true);
  AddValidationFlag(*command, flags->data);
  AddWhole(*command, "--batch", flags->options.batch, kImages,
           "Images per pass (default 100); the accuracy does not depend on "
           "it");
  AddThreadsFlag(*command, flags->options.threads);
  AddBudgetFlag(*command, flags->budget);
  command->add_flag("--json", flags->json, "One JSON object");
  command->footer("Example:\n  thimble eval --from run1 --data fashion-mnist");
  return [flags] { return Run(*flags); };
}

}  // namespace thimble::cli
