// SPDX-License-Identifier: Apache-2.0
#include "run_cli.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

#include "base/test_folder.h"

namespace thimble {
namespace {

int Spawn(const std::vector<std::string>& args, const std::string& out_path,
          const std::string& err_path, const Prepare& prepare) {
  std::vector<char*> argv;
  std::string binary = THIMBLE_CLI;
  argv.push_back(binary.data());
  std::vector<std::string> copies = args;
  for (std::string& arg : copies) argv.push_back(arg.data());
  argv.push_back(nullptr);
  const int pid = fork();
  if (pid != 0) return pid;
  const int flags = O_WRONLY | O_CREAT | O_TRUNC;
  dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
  dup2(open(out_path.c_str(), flags, 0600), STDOUT_FILENO);
  dup2(open(err_path.c_str(), flags, 0600), STDERR_FILENO);
  // What a test unpacks does not belong into the user's cache.
  const std::string cache = testing::TempDir() + "thimble-test-cache";
  setenv("XDG_CACHE_HOME", cache.c_str(), /*overwrite=*/0);
  if (prepare) prepare();
  execv(argv[0], argv.data());
  _exit(127);
}

}  // namespace

std::string ReadWholeFile(const std::string& path) {
  std::string text;
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) return text;
  char buffer[4096];
  size_t got = 0;
  while ((got = std::fread(buffer, 1, sizeof(buffer), file)) > 0) {
    text.append(buffer, got);
  }
  std::fclose(file);
  return text;
}

int StartCli(const std::vector<std::string>& args, const std::string& out_path,
             const Prepare& prepare) {
  return Spawn(args, out_path, out_path + ".err", prepare);
}

int WaitCli(int pid) {
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

CliResult RunCli(const std::vector<std::string>& args, const Prepare& prepare) {
  TestFolder folder;
  const std::string out = folder.File("out");
  const std::string err = folder.File("err");
  CliResult result;
  result.exit_code = WaitCli(Spawn(args, out, err, prepare));
  result.out = ReadWholeFile(out);
  result.err = ReadWholeFile(err);
  return result;
}

}  // namespace thimble
