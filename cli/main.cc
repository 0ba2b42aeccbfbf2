// SPDX-License-Identifier: Apache-2.0
//
// The command-line tool: a thin layer over the public headers.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "commands.h"
#include "thimble/rss.h"
#include "thimble/text.h"
#include "words.h"

namespace thimble::cli {

int Report(const Status& status) {
  if (status.ok()) return 0;
  std::fprintf(stderr, "thimble: %s\n",
               Printable(WithOptions(status.message())).c_str());
  return status.code() == StatusCode::kUsage ? 2 : 1;
}

int ReportUnlessFits(PlanSearch& search, bool precision_is_typed) {
  if (search.fits()) return 0;
  return Report(
      Status::Failed(RefusalText(search.Explain(), precision_is_typed)));
}

namespace {

// What is wrong with a command line that could not be parsed. The library does
// not name a command that it does not know, nor those that there are.
std::string ParseMessage(CLI::App& app, const CLI::ParseError& error) {
  CLI::App* innermost = &app;
  while (!innermost->get_subcommands().empty()) {
    innermost = innermost->get_subcommands().back();
  }
  std::string names;
  for (const CLI::App* command : innermost->get_subcommands(nullptr)) {
    names += (names.empty() ? "" : ", ") + command->get_name();
  }
  if (names.empty()) return error.what();
  const std::vector<std::string> words = innermost->remaining();
  const auto unknown =
      std::ranges::find_if_not(words, [](const std::string& word) {
        return word.starts_with('-');  // an option
      });
  std::string message = error.what();
  if (unknown != words.end()) {
    message = "there is no command '" + *unknown + "'";
  }
  return message + "; the commands are " + names;
}

// What follows the command's name, the last one first, as the library wants it.
// For it, `--out=` without a value takes the next argument; here it has an
// empty one, which is refused.
std::vector<std::string> ArgumentsOf(int argc, char** argv) {
  std::vector<std::string> arguments;
  bool options_ended = false;
  for (int i = 1; i < argc; ++i) {
    std::string text = argv[i];
    options_ended |= text == "--";
    const bool is_empty = !options_ended && text.starts_with("--") &&
                          text.find('=') == text.size() - 1;
    if (is_empty) text.pop_back();
    arguments.push_back(std::move(text));
    if (is_empty) arguments.emplace_back();
  }
  std::ranges::reverse(arguments);
  return arguments;
}

// What the command line asks for. Nothing, where all is said already and
// `exit_code` is what to end with. The parser's memory is free again by then.
Command ParseCommand(int argc, char** argv, int* exit_code) {
  CLI::App app(
      "Thimble trains neural networks inside a number of bytes that "
      "you name.",
      "thimble");
  app.set_version_flag("--version", THIMBLE_VERSION);
  app.require_subcommand(1);
  app.get_formatter()->column_width(34);
  Command plan = AddPlanCommand(app);
  Command train = AddTrainCommand(app);
  Command eval = AddEvalCommand(app);
  Command translate = AddTranslateCommand(app);
  Command inspect = AddInspectCommand(app);
  Command exporting = AddExportCommand(app);
  Command data = AddDataCommand(app);
  Command reproduce = AddReproduceCommand(app);
  app.footer(
      "Example:\n"
      "  thimble plan cnn --batch 100\n"
      "  thimble train cnn --data fashion-mnist --epochs 5 --out run1\n"
      "  thimble eval --from run1 --data fashion-mnist\n"
      "`thimble COMMAND --help` tells more. "
      "THIMBLE_TARGET=sse4|avx2|avx512|avx512bf16|neon\n"
      "in the environment forces a SIMD target; bits are the same per target "
      "only.");
  try {
    app.parse(ArgumentsOf(argc, argv));
  } catch (const CLI::Success& e) {
    *exit_code = app.exit(e);  // --help, --version
    return nullptr;
  } catch (const CLI::ParseError& e) {
    std::fprintf(stderr,
                 "thimble: %s\nRun `thimble --help`, or `thimble COMMAND "
                 "--help`, for what is accepted.\n",
                 Printable(ParseMessage(app, e)).c_str());
    *exit_code = 2;
    return nullptr;
  }
  if (app.got_subcommand("plan")) return plan;
  if (app.got_subcommand("train")) return train;
  if (app.got_subcommand("translate")) return translate;
  if (app.got_subcommand("inspect")) return inspect;
  if (app.got_subcommand("export")) return exporting;
  if (app.got_subcommand("data")) return data;
  if (app.got_subcommand("reproduce")) return reproduce;
  return eval;
}

int Main(int argc, char** argv) {
  int exit_code = 0;
  const Command command = ParseCommand(argc, argv, &exit_code);
  if (!command) return exit_code;
  // Nothing of the parser is needed again, and planning may take more than the
  // run that is planned.
  ReturnFreeHeap();
  ReturnCode();
  return command();
}

}  // namespace
}  // namespace thimble::cli

// A descriptor that the caller closed would be given to the next file opened,
// and what is printed would land in it. Output has a place that cannot be
// written to: nobody will read it, and that is told as for a full disk.
static void HoldStandardDescriptors() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (fcntl(fd, F_GETFD) >= 0) continue;
    // The lowest number that is free, which is `fd`.
    open("/dev/null", fd == STDOUT_FILENO ? O_RDONLY : O_RDWR);
  }
}

// What could not be printed must not look like success.
static int CheckOutput(int exit_code) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return exit_code;
  std::fprintf(stderr,
               "thimble: the output could not be written to its end: %s\n",
               std::strerror(errno));
  return exit_code == 0 ? 1 : exit_code;
}

// Says which limit that was, where there is one. Allocates nothing.
static int ReportOutOfMemory() {
  const std::pair<const char*, __rlimit_resource> limits[] = {
      {"ulimit -v", RLIMIT_AS}, {"ulimit -d", RLIMIT_DATA}};
  for (const auto& [name, resource] : limits) {
    rlimit limit{};
    if (getrlimit(resource, &limit) != 0) continue;
    if (limit.rlim_cur == RLIM_INFINITY) continue;
    std::fprintf(stderr,
                 "thimble: memory ran out; `%s` allows this process %llu kB: "
                 "raise that limit, or take a smaller model or --batch\n",
                 name, static_cast<unsigned long long>(limit.rlim_cur / 1024));
    return 1;
  }
  std::fprintf(stderr,
               "thimble: memory ran out; free some, or take a smaller model or "
               "--batch\n");
  return 1;
}

int main(int argc, char** argv) {
  thimble::MapCodeInPieces();
  HoldStandardDescriptors();
  // A file that gets too large for the shell's limit is an error code, not the
  // end.
  signal(SIGXFSZ, SIG_IGN);
  // Our own code throws nothing; libraries may, where memory runs out.
  try {
    return CheckOutput(thimble::cli::Main(argc, argv));
  } catch (const std::bad_alloc&) {
    return ReportOutOfMemory();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "thimble: %s\n", thimble::Printable(e.what()).c_str());
    return 1;
  }
}
