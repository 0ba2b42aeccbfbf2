// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <memory>
#include <string>

#include "commands.h"
#include "options.h"
#include "thimble/size.h"
#include "thimble/text.h"
#include "thimble/weights_file.h"

namespace thimble::cli {
namespace {

struct ExportFlags {
  std::string from;
  std::string dense;
  ExportOptions options;
};

int RunExport(const ExportFlags& flags) {
  const auto done = ExportDense(flags.from, flags.dense, flags.options);
  if (!done.ok()) return Report(done.status());
  std::printf("%s: %s of weights, %s made dense\n",
              Printable(flags.dense).c_str(),
              FormatBytes(done->tensor_bytes).c_str(),
              done->made_dense == 0 ? "none"
                                    : std::to_string(done->made_dense).c_str());
  return 0;
}

}  // namespace

Command AddExportCommand(CLI::App& app) {
  auto flags = std::make_shared<ExportFlags>();
  CLI::App* command = app.add_subcommand(
      "export", "Weights as a file in which all of them are dense");
  command
      ->add_option("DIR", flags->from,
                   "The folder given to --out, or a file of weights")
      ->required()
      ->check(CheckNotEmpty);
  command
      ->add_option("--dense", flags->dense,
                   "Where to write them: each weight is one tensor, in the "
                   "type that it was trained in")
      ->type_name("FILE")
      ->required()
      ->check(CheckNotEmpty);
  AddWhole(*command, "--average", flags->options.average, {1, 1000},
           "Write the mean of the weights of the last N epochs, of which "
           "`train --keep-epochs` has kept as many");
  command->add_flag("--overwrite", flags->options.overwrite,
                    "Replaces the file where it is there already");
  command->footer(
      "Example:\n"
      "  thimble export run1 --dense run1-dense.safetensors\n"
      "In a folder of its own, as weights.safetensors, `thimble eval` takes "
      "it:\n"
      "  mkdir run2 && thimble export run1 --dense run2/weights.safetensors\n"
      "  thimble eval --from run2 --data fashion-mnist");
  return [flags] { return RunExport(*flags); };
}

}  // namespace thimble::cli
