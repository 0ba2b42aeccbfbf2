// SPDX-License-Identifier: Apache-2.0
#include "data/download.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "thimble/size.h"

namespace thimble {
namespace {

constexpr int kProgressMilliseconds = 200;
// Of what the program says about a failure.
constexpr size_t kMaxMessage = 600;

Status CannotWrite(const std::string& path) {
  return Status::Failed(
      fmt::format("cannot write {}: {}", path, strerror(errno)));
}

// An absolute path of the program, or empty.
std::string FindProgram(const char* name) {
  const char* path = std::getenv("PATH");
  std::string rest = path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin";
  for (size_t end = 0; end != std::string::npos;) {
    end = rest.find(':');
    std::string program = rest.substr(0, end) + "/" + name;
    if (program[0] == '/' && IsFile(program) &&
        access(program.c_str(), X_OK) == 0) {
      return program;
    }
    if (end != std::string::npos) rest.erase(0, end + 1);
  }
  return {};
}

// The command that appends to `path` what of `url` is missing there.
Result<std::vector<std::string>> CommandFor(const std::string& url,
                                            const std::string& path) {
  // A line that stands still for a minute is an error, not a reason to wait.
  if (const std::string curl = FindProgram("curl"); !curl.empty()) {
    return std::vector<std::string>{curl,
                                    "--silent",
                                    "--show-error",
                                    "--fail",
                                    "--location",
                                    "--globoff",
                                    "--proto",
                                    "=http,https",
                                    "--connect-timeout",
                                    "30",
                                    "--speed-limit",
                                    "1",
                                    "--speed-time",
                                    "60",
                                    "--continue-at",
                                    "-",
                                    "--output",
                                    path,
                                    "--url",
                                    url};
  }
  if (const std::string wget = FindProgram("wget"); !wget.empty()) {
    return std::vector<std::string>{
        wget,           "--no-verbose", "--tries=1",
        "--timeout=60", "--continue",   "--output-document",
        path,           "--",           url};
  }
  return Status::Failed(
      "there is no curl and no wget to download with; install one, for example "
      "by `apt-get install curl`");
}

struct Outcome {
  int exit_code = -1;   // -1: ended by a signal
  std::string message;  // what it said, on one line
};

// The null-terminated array that exec takes; points into `strings`.
std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  for (std::string& s : strings) pointers.push_back(s.data());
  pointers.push_back(nullptr);
  return pointers;
}

// The environment, except that messages are in English: one is looked into.
std::vector<std::string> PlainEnvironment() {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (std::strncmp(*entry, "LC_ALL=", 7) != 0) all.emplace_back(*entry);
  }
  all.emplace_back("LC_ALL=C");
  return all;
}

// How long a file may get at most, by `ulimit -f`.
rlimit FileSizeLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0) {
    limit.rlim_cur = limit.rlim_max = RLIM_INFINITY;
  }
  return limit;
}

// What a new process does before it becomes the program. The system itself
// holds it to `max_bytes` and one more, by which it is seen that there is more.
void PrepareProgram(pid_t parent, uint64_t max_bytes) {
#ifdef __linux__
  // A download must not go on writing when its caller is gone.
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(127);
#endif
  rlimit limit = FileSizeLimit();
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_cur, max_bytes + 1);
  if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(127);
  // It shall say what is wrong instead of being ended.
  signal(SIGXFSZ, SIG_IGN);
}

// Runs the command with its output into a pipe, and calls `tick` now and then.
// It cannot write past `max_bytes` and one.
Result<Outcome> RunProgram(std::vector<std::string> command, uint64_t max_bytes,
                           const std::function<void()>& tick) {
  std::vector<std::string> environment = PlainEnvironment();
  const std::vector<char*> argv = Pointers(command);
  const std::vector<char*> envp = Pointers(environment);
  std::array<int, 2> ends;
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    return Status::Failed(
        fmt::format("cannot start {}: {}", command[0], strerror(errno)));
  }
  const FileDescriptor output(ends[0], "pipe");
  FileDescriptor input(ends[1], "pipe");
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) {
    return Status::Failed(
        fmt::format("cannot start {}: {}", command[0], strerror(errno)));
  }
  if (pid == 0) {
    PrepareProgram(parent, max_bytes);
    dup2(input.get(), STDOUT_FILENO);
    dup2(input.get(), STDERR_FILENO);
    execve(argv[0], argv.data(), envp.data());
    _exit(127);
  }
  input = FileDescriptor();
  Outcome outcome;
  for (;;) {
    pollfd ready{.fd = output.get(), .events = POLLIN, .revents = 0};
    const int count = poll(&ready, 1, kProgressMilliseconds);
    tick();
    if (count <= 0) continue;
    std::array<char, 512> piece;
    const ssize_t got = read(output.get(), piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    for (char c : std::string_view(piece.data(), static_cast<size_t>(got))) {
      if (outcome.message.size() < kMaxMessage) {
        outcome.message += c == '\n' ? ' ' : c;
      }
    }
  }
  int status = 0;
  pid_t ended = 0;
  do {
    ended = waitpid(pid, &status, 0);
  } while (ended < 0 && errno == EINTR);
  if (ended == pid && WIFEXITED(status))
    outcome.exit_code = WEXITSTATUS(status);
  outcome.message.erase(outcome.message.find_last_not_of(' ') + 1);
  return outcome;
}

// Whether the program failed only because there was something to go on from:
// the server sends no parts of a file, or has no more of it than is there.
bool CannotGoOn(const Outcome& outcome) {
  constexpr int kCurlRangeError = 33;
  return outcome.exit_code == kCurlRangeError ||
         outcome.message.find("returned error: 416") != std::string::npos;
}

}  // namespace

bool IsAddress(const std::string& text) {
  return text.find("://") != std::string::npos;
}

Result<FileDescriptor> OpenForDownload(const std::string& path) {
  FileDescriptor file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666),
                      path);
  if (file.get() < 0) return CannotWrite(path);
  if (TryLock(file) == LockState::kHeldByAnother) {
    return Status::Failed(fmt::format(
        "another process is downloading to {}; wait for it, or stop it", path));
  }
  return file;
}

Status Download(const std::string& url, const FileDescriptor& file,
                uint64_t max_bytes,
                const std::function<void(uint64_t)>& progress) {
  TH_ASSIGN_OR_RETURN(const std::vector<std::string> command,
                      CommandFor(url, file.path()));
  const auto tick = [&] {
    if (const auto stamp = StampOf(file); progress && stamp.ok()) {
      progress(stamp->bytes);
    }
  };
  TH_ASSIGN_OR_RETURN(const FileStamp before, StampOf(file));
  uint64_t kept = before.bytes;
  const auto start_anew = [&] {
    kept = 0;
    return ftruncate(file.get(), 0) == 0 ? Status::Ok()
                                         : CannotWrite(file.path());
  };
  if (kept > max_bytes) TH_RETURN_IF_ERROR(start_anew());
  TH_ASSIGN_OR_RETURN(Outcome outcome, RunProgram(command, max_bytes, tick));
  if (outcome.exit_code != 0 && kept > 0 && CannotGoOn(outcome)) {
    TH_RETURN_IF_ERROR(start_anew());
    TH_ASSIGN_OR_RETURN(outcome, RunProgram(command, max_bytes, tick));
  }
  TH_ASSIGN_OR_RETURN(const FileStamp after, StampOf(file));
  if (after.bytes > max_bytes) {
    if (ftruncate(file.get(), static_cast<off_t>(kept)) != 0) {
      return CannotWrite(file.path());
    }
    return Status::Failed(fmt::format(
        "cannot download {}: it is longer than {}, so it is not what is wanted",
        url, FormatBytes(max_bytes)));
  }
  if (outcome.exit_code == 0) return Status::Ok();
  const rlim_t limit = FileSizeLimit().rlim_cur;
  if (limit != RLIM_INFINITY && after.bytes >= limit) {
    return Status::Failed(
        fmt::format("cannot write {}: no file may be longer than {}; raise "
                    "the limit with `ulimit -f`",
                    file.path(), FormatBytes(limit)));
  }
  return Status::Failed(fmt::format(
      "cannot download {}: {}", url,
      outcome.message.empty() ? command[0] + " failed" : outcome.message));
}

}  // namespace thimble
