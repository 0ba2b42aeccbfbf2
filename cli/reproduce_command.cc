// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>

#include "commands.h"
#include "measure.h"
#include "options.h"
#include "thimble/reproduce.h"
#include "words.h"

namespace thimble::cli {
namespace {

struct ReproduceFlags {
  std::string name;
  ReproduceOptions options;
  int64_t steps = 5;
  bool csv = false;
  bool json = false;
  std::string svg;
};

std::string ReproductionList() {
  std::string text;
  for (const ReproductionName& r : ReproductionNames()) {
    text += (text.empty() ? "" : "; ") + std::string(r.name) + ": " +
            WithOptions(std::string(r.what));
  }
  return text;
}

// On a terminal a line that changes; elsewhere a line for each run, which take
// long, and none for plans.
void TellProgress(const std::string& what, bool is_live) {
  if (is_live) {
    std::fprintf(stderr, "\r\033[K%s", what.c_str());
  } else if (what.starts_with("measuring")) {
    std::fprintf(stderr, "%s\n", what.c_str());
  }
}

std::string TextOf(const Reproduction& reproduction,
                   const ReproduceFlags& flags) {
  if (flags.json) return ReproductionJson(reproduction) + "\n";
  return flags.csv ? ReproductionCsv(reproduction)
                   : ReproductionText(reproduction);
}

int RunReproduce(ReproduceFlags& flags) {
  const bool is_live = isatty(STDERR_FILENO) != 0;
  flags.options.progress = [is_live](const std::string& what) {
    TellProgress(what, is_live);
  };
  flags.options.measure = [&flags](const RunToMeasure& run) {
    return MeasureRun(run, flags.options.quick ? 1 : flags.steps);
  };
  auto reproduction = Reproduce(flags.name, flags.options);
  if (is_live) std::fputs("\r\033[K", stderr);
  if (!reproduction.ok()) return Report(reproduction.status());
  for (std::string& note : reproduction->notes) note = WithOptions(note);
  std::fputs(TextOf(*reproduction, flags).c_str(), stdout);
  if (flags.svg.empty()) return 0;
  return Report(WriteReproductionSvg(*reproduction, flags.svg));
}

}  // namespace

Command AddReproduceCommand(CLI::App& app) {
  auto flags = std::make_shared<ReproduceFlags>();
  CLI::App* command =
      app.add_subcommand("reproduce", "A paper's figure or table beside ours");
  command->add_option("NAME", flags->name, ReproductionList())
      ->required()
      ->check(CheckNotEmpty);
  command->add_flag("--memory-only", flags->options.memory_only,
                    "Leave out what only training can tell: what processes "
                    "take for the settings of table3, and how fast they are");
  command->add_flag("--quick", flags->options.quick,
                    "Smaller networks for chen-resnet and chen-lstm, whose "
                    "plans take a minute or so; one step for each run of "
                    "table3");
  AddWhole(*command, "--steps", flags->steps, {1, uint64_t{1} << 40},
           "Steps that each run of table3 trains (default 5)");
  AddWhole(*command, "--threads", flags->options.threads, kThreads,
           "Threads to plan workspace for (default 2)");
  CLI::Option* csv = command->add_flag(
      "--csv", flags->csv,
      "Comma-separated values with six decimals, which are every "
      "byte where the unit is MB");
  command->add_flag("--json", flags->json, "One JSON object, with as many")
      ->excludes(csv);
  command
      ->add_option("--svg", flags->svg,
                   "Also draw it into this file, which needs no other")
      ->type_name("FILE")
      ->check(CheckNotEmpty);
  command->footer(
      "Example:\n"
      "  thimble reproduce fig5 --svg fig5.svg\n"
      "  thimble reproduce table3 --memory-only --csv\n"
      "  thimble reproduce table3 --json\n"
      "  thimble reproduce chen-resnet --quick\n"
      "A dash stands where the paper prints no number or Thimble cannot "
      "compute "
      "one; notes say why.");
  return [flags] { return RunReproduce(*flags); };
}

}  // namespace thimble::cli
