// SPDX-License-Identifier: Apache-2.0
//
// For tests of the command-line tool: runs the built binary as users do and
// gives back what it said.
#pragma once

#include <string>
#include <vector>

namespace thimble {

struct CliResult {
  int exit_code = -1;  // -1: ended by a signal
  std::string out;
  std::string err;
};

// Runs `thimble args…` to its end.
CliResult RunCli(const std::vector<std::string>& args);

// Starts it; output goes to `out_path`. Returns the process id.
int StartCli(const std::vector<std::string>& args, const std::string& out_path);

// Waits for a started one; -1 where a signal ended it.
int WaitCli(int pid);

std::string ReadWholeFile(const std::string& path);

}  // namespace thimble
