// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>

#include "commands.h"
#include "options.h"
#include "thimble/reproduce.h"
#include "words.h"

namespace thimble::cli {
namespace {

struct ReproduceFlags {
  std::string name;
  ReproduceOptions options;
  bool csv = false;
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

int RunReproduce(ReproduceFlags& flags) {
  const bool is_live = isatty(STDERR_FILENO) != 0;
  if (is_live) {
    flags.options.progress = [](const std::string& what) {
      std::fprintf(stderr, "\r\033[Kplanning %s", what.c_str());
    };
  }
  auto reproduction = Reproduce(flags.name, flags.options);
  if (is_live) std::fputs("\r\033[K", stderr);
  if (!reproduction.ok()) return Report(reproduction.status());
  for (std::string& note : reproduction->notes) note = WithOptions(note);
  const std::string text = flags.csv ? ReproductionCsv(*reproduction)
                                     : ReproductionText(*reproduction);
  std::fputs(text.c_str(), stdout);
  if (flags.svg.empty()) return 0;
  return Report(WriteReproductionSvg(*reproduction, flags.svg));
}

}  // namespace

Command AddReproduceCommand(CLI::App& app) {
  auto flags = std::make_shared<ReproduceFlags>();
  CLI::App* command = app.add_subcommand(
      "reproduce", "A paper's figure or table beside ours; trains nothing");
  command->add_option("NAME", flags->name, ReproductionList())
      ->required()
      ->check(CheckNotEmpty);
  command->add_flag("--memory-only", flags->options.memory_only,
                    "Leave out what only training can tell (table3 needs it)");
  command->add_flag("--quick", flags->options.quick,
                    "Smaller networks for chen-resnet and chen-lstm, whose "
                    "plans take a minute or so");
  AddWhole(*command, "--threads", flags->options.threads, kThreads,
           "Threads to plan workspace for (default 2)");
  command->add_flag("--csv", flags->csv,
                    "Comma-separated values with six decimals, which are every "
                    "byte where the unit is MB");
  command
      ->add_option("--svg", flags->svg,
                   "Also draw it into this file, which needs no other")
      ->type_name("FILE")
      ->check(CheckNotEmpty);
  command->footer(
      "Example:\n"
      "  thimble reproduce fig5 --svg fig5.svg\n"
      "  thimble reproduce table3 --memory-only --csv\n"
      "  thimble reproduce chen-resnet --quick\n"
      "A dash stands where the paper prints no number or Thimble cannot "
      "compute "
      "one; notes say why.");
  return [flags] { return RunReproduce(*flags); };
}

}  // namespace thimble::cli
