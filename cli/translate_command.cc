// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>

#include "commands.h"
#include "options.h"
#include "thimble/size.h"
#include "thimble/translate.h"

namespace thimble::cli {
namespace {

struct TranslateFlags {
  std::string from;
  TranslateOptions options{.threads = 0};
  std::string budget;
  bool stats = false;
};

int RunTranslate(const TranslateFlags& flags) {
  auto budget = ParseBudget(flags.budget);
  if (!budget.ok()) return Report(budget.status());
  TranslateOptions options = flags.options;
  options.budget = *budget;
  options.threads = ThreadsOrDefault(options.threads);
  // A reader that goes away is an error code, not the end.
  signal(SIGPIPE, SIG_IGN);
  auto translator = Translator::Open(flags.from, options);
  if (!translator.ok()) return Report(translator.status());
  const auto begin = std::chrono::steady_clock::now();
  auto done = (*translator)->Translate(STDIN_FILENO, STDOUT_FILENO);
  if (!done.ok()) return Report(done.status());
  if (!flags.stats) return 0;
  const std::chrono::duration<double> seconds =
      std::chrono::steady_clock::now() - begin;
  const Plan& plan = (*translator)->plan();
  std::fprintf(
      stderr,
      "%lld lines, %lld source tokens, %lld target tokens in %.1f s: %.0f "
      "target tokens/s; up to %lld sentences at once, arena %s, search beside "
      "it %s\n",
      static_cast<long long>(done->lines),
      static_cast<long long>(done->source_tokens),
      static_cast<long long>(done->target_tokens), seconds.count(),
      static_cast<double>(done->target_tokens) / seconds.count(),
      static_cast<long long>((*translator)->batch()),
      FormatBytesUp(plan.arena_bytes()).c_str(),
      FormatBytesUp((*translator)->search_bytes()).c_str());
  return 0;
}

}  // namespace

void AddSearchFlags(CLI::App& command, TranslateOptions& options,
                    const std::string& beam) {
  AddWhole(command, "--beam", options.beam, {1, 256},
           "Hypotheses of a sentence; 1 takes the most probable token each "
           "time" +
               beam);
  AddDecimal(command, "--length-penalty", options.length_penalty, kNotNegative,
             "Translations are compared by the sum of log-probabilities over "
             "their length to this power (default 1)");
  AddWhole(command, "--max-length", options.max_length, {1, 65536},
           "Tokens of a translation at most, its end not counted (default "
           "200)");
  AddWhole(command, "--average", options.average, {1, 1000},
           "Take the mean of the weights of the last N epochs, of which "
           "`train --keep-epochs` has kept as many");
}

Command AddTranslateCommand(CLI::App& app) {
  auto flags = std::make_shared<TranslateFlags>();
  TranslateOptions& options = flags->options;
  CLI::App* command = app.add_subcommand(
      "translate", "Translate standard input to standard output, line by line");
  command->add_option("--from", flags->from, "The folder given to train --out")
      ->required()
      ->check(CheckNotEmpty);
  AddSearchFlags(*command, options, " (default 4)");
  AddWhole(*command, "--nbest", options.nbest, {1, 256},
           "Write the best N translations of each line, at most --beam: number "
           "of the line, score and text, with tabs between");
  AddWhole(*command, "--batch", options.batch, {1, 65536},
           "Sentences at once, fewer where --budget has no room (default 32); "
           "translations do not depend on it");
  AddWhole(*command, "--max-source", options.max_source, {1, 65536},
           "Tokens of a line at most, its end counted (default 1024)");
  AddThreadsFlag(*command, options.threads);
  AddBudgetFlag(*command, flags->budget);
  command->add_flag("--stats", flags->stats,
                    "At the end, say on standard error how much it was, how "
                    "fast, and in how many bytes");
  command->footer(
      "Example:\n"
      "  thimble translate --from run1 < test.de > test.en\n"
      "Lines are text as it was prepared for training: tokenised, and in its "
      "case.");
  return [flags] { return RunTranslate(*flags); };
}

}  // namespace thimble::cli
