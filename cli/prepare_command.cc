// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <cstdio>
#include <memory>

#include "commands.h"
#include "meter.h"
#include "options.h"
#include "stop.h"
#include "thimble/prepare_text.h"
#include "thimble/size.h"
#include "thimble/text.h"
#include "words.h"

namespace thimble::cli {
namespace {

std::string UnknownText(int64_t part, int64_t whole) {
  char text[32];
  std::snprintf(text, sizeof(text), " (%.2f%%)",
                whole == 0 ? 0.0
                           : 100.0 * static_cast<double>(part) /
                                 static_cast<double>(whole));
  return std::to_string(part) + text;
}

void PrintSplit(const char* name, const PreparedSplit& split,
                const PrepareOptions& options) {
  std::printf("%-6s %s: %lld tokens of %s, %lld of %s; longest %lld and %lld\n",
              name, Counted(split.pairs, "pair").c_str(),
              static_cast<long long>(split.tokens[0]),
              Printable(options.source).c_str(),
              static_cast<long long>(split.tokens[1]),
              Printable(options.target).c_str(),
              static_cast<long long>(split.longest[0]),
              static_cast<long long>(split.longest[1]));
  if (split.pairs < split.lines) {
    std::printf(
        "       left out: %lld with an empty side, %lld longer than "
        "%lld tokens, %lld of too different lengths\n",
        static_cast<long long>(split.empty),
        static_cast<long long>(split.too_long),
        static_cast<long long>(options.max_length),
        static_cast<long long>(split.uneven));
  }
  if (split.unknown[0] + split.unknown[1] > 0) {
    std::printf("       unknown tokens: %s of %s, %s of %s\n",
                UnknownText(split.unknown[0], split.tokens[0]).c_str(),
                Printable(options.source).c_str(),
                UnknownText(split.unknown[1], split.tokens[1]).c_str(),
                Printable(options.target).c_str());
  }
}

void PrintSummary(const PrepareOptions& options, const PrepareSummary& done) {
  for (size_t i = 0; i < kTextSplits; ++i) {
    if (!done.splits[i].has_value()) continue;
    PrintSplit(TextSplitName(static_cast<TextSplit>(i)), *done.splits[i],
               options);
  }
  std::printf("%s; the vocabulary of %s has %lld tokens, that of %s %lld\n",
              Counted(done.codes, "code").c_str(),
              Printable(options.source).c_str(),
              static_cast<long long>(done.vocabulary[0]),
              Printable(options.target).c_str(),
              static_cast<long long>(done.vocabulary[1]));
  if (done.unlisted[0] + done.unlisted[1] > 0) {
    std::printf(
        "for %lld and %lld rare ones no number was left: they are "
        "unknown\n",
        static_cast<long long>(done.unlisted[0]),
        static_cast<long long>(done.unlisted[1]));
  }
  if (done.forgotten > 0) {
    std::printf(
        "codes were learned without %s, for which --memory left no "
        "room\n",
        Counted(done.forgotten, "rare word").c_str());
  }
  std::printf("written to %s\n", Printable(done.out).c_str());
}

struct PrepareFlags {
  PrepareOptions options;
  std::string memory;
};

int Prepare(PrepareOptions options, const std::string& memory) {
  if (!memory.empty()) {
    const auto bytes = ParseSize(memory);
    if (!bytes.ok()) return Report(bytes.status());
    options.memory = *bytes;
  }
  options.stop = StopOnSignals();
  Meter meter(isatty(STDERR_FILENO) != 0);
  options.progress = [&meter](const PrepareProgress& progress) {
    if (!meter.IsDue()) return;
    meter.Show(std::string(progress.doing) + ": " +
               std::to_string(progress.done * 100 / progress.total) + "%");
  };
  const auto done = PrepareText(options);
  meter.Close();
  if (!done.ok()) return Report(done.status());
  PrintSummary(options, *done);
  return 0;
}

}  // namespace

Command AddPrepareCommand(CLI::App& data, CLI::App** command) {
  auto flags = std::make_shared<PrepareFlags>();
  PrepareOptions& options = flags->options;
  CLI::App* prepare = data.add_subcommand(
      "prepare", "Make tokens of text in two languages, to train on");
  const auto text = [&](const char* name, std::string& value,
                        const char* what) {
    return prepare->add_option(name, value, what)->check(CheckNotEmpty);
  };
  text(
      "DIR", options.dir,
      "Holds train.LANGUAGE, and valid.LANGUAGE and test.LANGUAGE if there are "
      "such: UTF-8, a sentence on each line, words divided by spaces")
      ->required();
  text("--source", options.source, "The language that is read, e.g. de")
      ->required();
  text("--target", options.target, "The language that is written, e.g. en")
      ->required();
  text("--valid", options.valid,
       "Name of the files to validate on (default: valid)");
  text("--test", options.test, "Name of the files to test on (default: test)");
  text("--out", options.out,
       "The folder to write, which must not be there yet (default: "
       "DIR/prepared-SOURCE-TARGET)");
  CLI::Option* merges =
      AddWhole(*prepare, "--merges", options.merges, {0, 1'000'000},
               "Byte-pair codes to learn, of both languages together (default "
               "10000)");
  text("--codes", options.codes,
       "Byte-pair codes to use, in a file of subword-nmt's format (default: "
       "learned)")
      ->excludes(merges);
  text("--dictionaries", options.dictionaries,
       "A folder that was prepared before: use its dictionaries, and its codes "
       "unless others are given; what is not in them is unknown")
      ->excludes(merges);
  AddWhole(*prepare, "--max-length", options.max_length, {2, 65'535},
           "Leave out pairs with more tokens on a side, its end counted, other "
           "than those to test on (default 250)");
  AddDecimal(
      *prepare, "--ratio", options.ratio, kPositive,
      "Leave out pairs of which one side has more than so many times the "
      "words of the other (default: no limit)");
  AddWhole(*prepare, "--seed", options.seed, {0, 9'999'999'999'999'999'999u},
           "Of the order of sentences of one length (default 1)");
  prepare
      ->add_option("--memory", flags->memory,
                   "What counting words and sorting sentences may take, each "
                   "(default: 256MiB)")
      ->check(CheckNotEmpty);
  prepare->footer(
      "Example:\n"
      "  thimble data prepare multi30k --source de --target en --test "
      "test2016\n"
      "  thimble data prepare iwslt14 --source de --target en --codes "
      "iwslt14/code");
  *command = prepare;
  return [flags] { return Prepare(flags->options, flags->memory); };
}

}  // namespace thimble::cli
