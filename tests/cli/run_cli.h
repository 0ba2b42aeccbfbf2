// SPDX-License-Identifier: Apache-2.0
//
// For tests of the command-line tool: runs the built binary as users do and
// gives back what it said.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace thimble {

struct CliResult {
  int exit_code = -1;  // -1: ended by a signal
  std::string out;
  std::string err;
};

// What a shell would set up before it starts the tool: ignored signals, limits,
// closed files. Called in the new process.
using Prepare = std::function<void()>;

// Runs `thimble args…` to its end.
CliResult RunCli(const std::vector<std::string>& args,
                 const Prepare& prepare = {});

// Starts it; output goes to `out_path`. Returns the process id.
int StartCli(const std::vector<std::string>& args, const std::string& out_path,
             const Prepare& prepare = {});

// Waits for a started one; -1 where a signal ended it.
int WaitCli(int pid);

std::string ReadWholeFile(const std::string& path);

}  // namespace thimble
