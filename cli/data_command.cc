// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <cstdio>
#include <memory>

#include "commands.h"
#include "meter.h"
#include "options.h"
#include "thimble/data.h"
#include "thimble/size.h"
#include "thimble/text.h"
#include "words.h"

namespace thimble::cli {
namespace {

struct DataCommandFlags {
  std::string name;
  std::string data_dir;
  FetchOptions fetch;
  bool is_list = false;
};

int List(const DataCommandFlags& flags) {
  int code = 0;
  for (const DatasetSummary& known : KnownDatasets()) {
    // --data-dir is one set's folder; each is looked for as `train` would.
    const auto folder = LocateDataset(
        known.name, {.data_dir = flags.data_dir, .cache_dir = {}});
    if (!folder.ok()) code = 1;
    const std::string where = known.computed    ? "always there"
                              : !folder.ok()    ? folder.status().message()
                              : folder->empty() ? "not here"
                                                : "in " + *folder;
    std::printf("%-16s %s\n%-16s %s\n", known.name,
                WithOptions(known.description).c_str(), "",
                Printable(WithOptions(where)).c_str());
  }
  return code;
}

std::string ProgressText(const FetchProgress& progress) {
  std::string text =
      std::string(progress.doing) + ": " + FormatBytes(progress.bytes);
  if (progress.total > 0) {
    text += " of " + FormatBytes(progress.total) + ", " +
            std::to_string(progress.bytes * 100 / progress.total) + "%";
  }
  return text;
}

int Get(const DataCommandFlags& flags) {
  FetchOptions options = flags.fetch;
  options.places.data_dir = flags.data_dir;
  Meter meter(isatty(STDERR_FILENO) != 0);
  options.progress = [&meter](const FetchProgress& progress) {
    if (meter.IsDue()) meter.Show(ProgressText(progress));
  };
  const auto folder = FetchDataset(flags.name, options);
  meter.Close();
  if (!folder.ok()) return Report(folder.status());
  std::printf("%s is in %s; every file's SHA-256 is right\n",
              flags.name.c_str(), Printable(*folder).c_str());
  return 0;
}

}  // namespace

Command AddDataCommand(CLI::App& app) {
  auto flags = std::make_shared<DataCommandFlags>();
  CLI::App* command = app.add_subcommand(
      "data", "Which data sets there are; get them, and prepare text");
  command->require_subcommand(1);
  command->footer(
      "Example:\n"
      "  thimble data list\n"
      "  thimble data get cifar10\n"
      "  thimble data prepare multi30k --source de --target en");
  CLI::App* list = command->add_subcommand(
      "list", "The data sets known by name, and where they are");
  list->footer("Example:\n  thimble data list");
  CLI::App* get = command->add_subcommand(
      "get", "Bring a data set's files here and check them");
  get->add_option("NAME", flags->name, "cifar10")
      ->required()
      ->check(CheckNotEmpty);
  get->add_option("--from", flags->fetch.from,
                  "The archive's address (http or https), the archive, or a "
                  "folder of its files (default: the publisher's address)")
      ->check(CheckNotEmpty);
  get->add_option("--sums", flags->fetch.sums,
                  "Other SHA-256 sums to check, in a file as sha256sum writes "
                  "it (default: those of the published files)")
      ->check(CheckNotEmpty);
  get->footer(
      "Example:\n"
      "  thimble data get cifar10\n"
      "  thimble data get cifar10 --from ~/cifar-10-binary.tar.gz\n"
      "Addresses are read by curl or wget. A download that broke off goes on "
      "where\nit stopped when the command is given again.");
  for (CLI::App* each : {list, get}) {
    each->add_option("--data-dir", flags->data_dir,
                     "The set's own folder (default: in the user's cache)")
        ->check(CheckNotEmpty);
  }
  CLI::App* prepare = nullptr;
  const Command prepared = AddPrepareCommand(*command, &prepare);
  // The parser is gone when the command runs.
  list->parse_complete_callback([flags] { flags->is_list = true; });
  const auto is_prepare = std::make_shared<bool>(false);
  prepare->parse_complete_callback([is_prepare] { *is_prepare = true; });
  return [flags, is_prepare, prepared] {
    if (*is_prepare) return prepared();
    return flags->is_list ? List(*flags) : Get(*flags);
  };
}

}  // namespace thimble::cli
