// SPDX-License-Identifier: Apache-2.0
#include "measure.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "thimble/dtype.h"
#include "thimble/sparsity.h"

namespace thimble::cli {
namespace {

// What a process prints, in memory: a pipe would have to be read meanwhile.
class Output {
 public:
  Output() : fd_(memfd_create("thimble", MFD_CLOEXEC)) {}
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;
  ~Output() {
    if (fd_ >= 0) close(fd_);
  }

  int fd() const { return fd_; }

  std::string Text() const {
    std::string text;
    char buffer[4096];
    lseek(fd_, 0, SEEK_SET);
    for (ssize_t got; (got = read(fd_, buffer, sizeof(buffer))) > 0;) {
      text.append(buffer, static_cast<size_t>(got));
    }
    return text;
  }

 private:
  int fd_;
};

std::vector<std::string> ArgumentsFor(const RunToMeasure& run, int64_t steps) {
  std::vector<std::string> arguments = {
      "thimble",         "train",
      run.model,         "--data",
      "synthetic-cifar", "--json",
      "--steps",         std::to_string(steps),
      "--batch",         std::to_string(run.batch),
      "--microbatch",    std::to_string(run.microbatch),
      "--precision",     DTypeName(run.dtype),
      "--threads",       std::to_string(run.threads),
      "--checkpoint",    run.recompute};
  const auto add = [&](const char* name, std::string value) {
    arguments.emplace_back(name);
    arguments.push_back(std::move(value));
  };
  if (run.budget.has_value()) add("--budget", std::to_string(*run.budget));
  if (run.sparse.is_dense()) return arguments;
  add("--nonzero", std::to_string(run.sparse.nonzero));
  if (run.sparse.index.has_value()) {
    add("--sparse-index", IndexCodecName(*run.sparse.index));
  }
  return arguments;
}

// Runs this program. Its exit code, or −1 where it has none.
Result<int> RunSelf(std::vector<std::string> arguments, const Output& out,
                    const Output& err) {
  std::vector<char*> argv;
  argv.reserve(arguments.size() + 1);
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) {
    return Status::Failed(std::string("cannot start a process: ") +
                          std::strerror(errno));
  }
  if (pid == 0) {
    // Whoever stops this program stops what it measures.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    dup2(out.fd(), STDOUT_FILENO);
    dup2(err.fd(), STDERR_FILENO);
    execv("/proc/self/exe", argv.data());
    _exit(127);
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// What a failed process said last.
std::string LastLine(const std::string& text) {
  const size_t end = text.find_last_not_of('\n');
  if (end == std::string::npos) return "it says nothing";
  const size_t begin = text.find_last_of("\n\r", end);
  return text.substr(begin + 1, end - begin);
}

}  // namespace

Result<MeasuredRun> MeasureRun(const RunToMeasure& run, int64_t steps) {
  const Output out, err;
  if (out.fd() < 0 || err.fd() < 0) {
    return Status::Failed(std::string("cannot measure: ") +
                          std::strerror(errno));
  }
  const auto code = RunSelf(ArgumentsFor(run, steps), out, err);
  if (!code.ok()) return code.status();
  const auto summary =
      nlohmann::json::parse(out.Text(), nullptr, /*allow_exceptions=*/false);
  const auto number = [&](const char* key) {
    const auto found = summary.is_object() ? summary.find(key) : summary.end();
    return found != summary.end() && found->is_number()
               ? std::optional(found->get<double>())
               : std::nullopt;
  };
  const auto rss = number("rss_process_peak_bytes");
  const auto speed = number("images_per_second");
  if (*code != 0 || !rss.has_value() || !speed.has_value()) {
    return Status::Failed("a run to measure " + run.model +
                          " failed: " + LastLine(err.Text()));
  }
  return MeasuredRun{.rss_bytes = static_cast<int64_t>(*rss),
                     .images_per_second = *speed};
}

}  // namespace thimble::cli
