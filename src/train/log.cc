// SPDX-License-Identifier: Apache-2.0
#include "train/log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>

#include "base/check.h"

using namespace std::string_view_literals;

namespace thimble::train {
namespace {

constexpr size_t kLineBytes = 512;

// JSON has no NaN; a diverged number is null. Nine digits tell floats apart.
struct Number {
  double value;
};

char* Put(char* out, const Number& n) {
  if (!std::isfinite(n.value)) return fmt::format_to(out, "null");
  return fmt::format_to(out, "{:.9g}", n.value);
}

char* Put(char* out, std::string_view text) {
  return fmt::format_to(out, "{}", text);
}

char* Put(char* out, int64_t n) { return fmt::format_to(out, "{}", n); }

// Concatenates the parts, which fit kLineBytes by construction.
template <typename... Parts>
std::string_view Line(char (&buffer)[kLineBytes], const Parts&... parts) {
  char* out = buffer;
  ((out = Put(out, parts)), ...);
  return {buffer, static_cast<size_t>(out - buffer)};
}

// Text may hold anything: a folder's name is no UTF-8 in some cases.
template <typename T>
std::string JsonOf(const T& value) {
  return nlohmann::json(value).dump(-1, ' ', false,
                                    nlohmann::json::error_handler_t::replace);
}

// What is in a file before the log is opened.
struct Before {
  bool is_log = true;  // or nothing at all
  // The last line lacks its end: the disk was full, or the process was killed
  // while it wrote.
  bool ends_inside_a_line = false;
};

// REQUIRES: `path` is a regular file.
Result<Before> LookAt(const std::string& path) {
  constexpr std::string_view kBegin = "{\"event\":\"";
  TH_ASSIGN_OR_RETURN(const FileDescriptor file, OpenForReading(path));
  TH_ASSIGN_OR_RETURN(const FileStamp stamp, StampOf(file));
  if (stamp.bytes == 0) return Before{};
  std::string begin(std::min<uint64_t>(stamp.bytes, kBegin.size()), '\0');
  TH_RETURN_IF_ERROR(
      ReadFullyAt(file, std::as_writable_bytes(std::span(begin)), 0));
  std::byte last{};
  TH_RETURN_IF_ERROR(ReadFullyAt(file, {&last, 1}, stamp.bytes - 1));
  return Before{kBegin.starts_with(begin), last != std::byte{'\n'}};
}

}  // namespace

Result<Log> Log::Open(const std::string& path, bool append) {
  if (path.empty()) return Log();
  // Appending in any case: two runs with one log then mix their lines, and tear
  // none.
  const int fd =
      open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_APPEND, 0666);
  const auto cannot_write = [&] {
    return Status::Failed(fmt::format(
        "cannot write the log {}: {}; name a file in a folder that exists and "
        "is writable",
        path, std::strerror(errno)));
  };
  if (fd < 0) return cannot_write();
  Log log(FileDescriptor(fd, path));
  // Pipes and devices have no contents to lose.
  if (!IsFile(path)) return log;
  TH_ASSIGN_OR_RETURN(const Before before, LookAt(path));
  if (!before.is_log) {
    return Status::Failed(fmt::format(
        "{} is there and is no log of a run; it was left as it is: choose "
        "another name for the log, or remove it",
        path));
  }
  if (!append && ftruncate(fd, 0) != 0) return cannot_write();
  if (append && before.ends_inside_a_line) log.WriteLine("\n");
  return log;
}

void Log::WriteLine(std::string_view line) {
  if (file_.get() < 0 || !status_.ok()) return;
  while (!line.empty()) {
    const ssize_t wrote = write(file_.get(), line.data(), line.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) {
      status_ = Status::Failed(fmt::format("the log {} is not complete: {}",
                                           file_.path(), std::strerror(errno)));
      return;
    }
    line.remove_prefix(static_cast<size_t>(wrote));
  }
}

void Log::Start(std::string_view plan_json, std::span<const SourceFact> facts,
                uint64_t seed) {
  std::string line = "{\"event\":\"start\"";
  for (const SourceFact& fact : facts) {
    line +=
        "," + JsonOf(fact.name) + ":" +
        std::visit([](const auto& value) { return JsonOf(value); }, fact.value);
  }
  line += fmt::format(",\"seed\":{},\"plan\":{}}}\n", seed, plan_json);
  WriteLine(line);
}

void Log::Resume(int64_t step) {
  WriteLine(fmt::format("{{\"event\":\"resume\",\"step\":{}}}\n", step));
}

void Log::Step(const StepEvent& event) {
  char buffer[kLineBytes];
  WriteLine(Line(buffer, "{\"event\":\"step\",\"step\":"sv, event.step,
                 ",\"epoch\":"sv, event.epoch, ",\"loss\":"sv,
                 Number{event.loss}, ",\"learning_rate\":"sv,
                 Number{event.learning_rate}, ",\"images_per_second\":"sv,
                 Number{event.images_per_second}, "}\n"sv));
}

void Log::Epoch(const EpochEvent& event) {
  char buffer[kLineBytes];
  WriteLine(Line(buffer, "{\"event\":\"epoch\",\"epoch\":"sv, event.epoch,
                 ",\"train_loss\":"sv, Number{event.train_loss},
                 ",\"train_accuracy\":"sv, Number{event.train_accuracy},
                 ",\"test_loss\":"sv, Number{event.test_loss},
                 ",\"test_accuracy\":"sv, Number{event.test_accuracy},
                 ",\"images_per_second\":"sv, Number{event.images_per_second},
                 ",\"seconds\":"sv, Number{event.seconds}, "}\n"sv));
}

void Log::Summary(const TrainSummary& summary) {
  WriteLine(SummaryJson(summary) + "\n");
}

}  // namespace thimble::train

namespace thimble {

std::string SummaryJson(const TrainSummary& summary) {
  using train::Number;
  char buffer[train::kLineBytes];
  return std::string(train::Line(
      buffer, "{\"event\":\"summary\",\"arena_bytes\":"sv,
      static_cast<int64_t>(summary.arena_bytes), ",\"rss_base_bytes\":"sv,
      summary.rss_base_bytes, ",\"rss_peak_bytes\":"sv, summary.rss_peak_bytes,
      ",\"images_per_second\":"sv, Number{summary.images_per_second},
      ",\"best_test_accuracy\":"sv, Number{summary.best_test_accuracy},
      ",\"test_accuracy\":"sv, Number{summary.test_accuracy},
      ",\"final_train_loss\":"sv, Number{summary.final_train_loss},
      ",\"steps\":"sv, summary.steps, ",\"stopped\":"sv,
      summary.stopped ? "true"sv : "false"sv, ",\"weights_sha256\":\""sv,
      std::string_view(summary.weights_sha256), "\"}"sv));
}

}  // namespace thimble
