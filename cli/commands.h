// SPDX-License-Identifier: Apache-2.0
//
// The subcommands. Each adds its options to the parser and, when it was chosen,
// runs, without the parser; the returned number is the process's exit code: 0
// done, 1 failed, 2 the command line was wrong.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "thimble/plan_search.h"
#include "thimble/status.h"

namespace thimble::cli {

using Command = std::function<int()>;

Command AddPlanCommand(CLI::App& app);
Command AddTrainCommand(CLI::App& app);
Command AddEvalCommand(CLI::App& app);
Command AddInspectCommand(CLI::App& app);
Command AddExportCommand(CLI::App& app);
Command AddTranslateCommand(CLI::App& app);
Command AddDataCommand(CLI::App& app);
// A part of `data`, whose name is put into `command`.
Command AddPrepareCommand(CLI::App& data, CLI::App** command);
Command AddReproduceCommand(CLI::App& app);

// Prints "thimble: <message>" to stderr, options in place of fields, and
// returns the exit code for `status`.
int Report(const Status& status);
// The same for a plan that is over its budget, with the options that would
// help; 0 where it fits.
int ReportUnlessFits(PlanSearch& search, bool precision_is_typed = false);

}  // namespace thimble::cli
