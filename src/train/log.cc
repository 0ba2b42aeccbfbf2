// SPDX-License-Identifier: Apache-2.0
#include "train/log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <iterator>
#include <span>

#include "base/check.h"
#include "thimble/text.h"

using namespace std::string_view_literals;

namespace thimble::train {
namespace {

// Text may hold anything: a folder's name is no UTF-8 in some cases.
std::string JsonOf(const std::string& text) { return JsonText(text); }
std::string JsonOf(int64_t number) { return std::to_string(number); }

// ",\"<prefix><name><suffix>\":"
std::string Key(std::string_view prefix, std::string_view name,
                std::string_view suffix = "") {
  return fmt::format(",{}:",
                     JsonOf(fmt::format("{}{}{}", prefix, name, suffix)));
}

std::string SpeedKey(std::string_view axis) {
  return Key("", axis, "_per_second");
}

void Append(std::string* line, std::string_view text) { *line += text; }
void Append(std::string* line, int64_t n) {
  fmt::format_to(std::back_inserter(*line), "{}", n);
}
// JSON has no NaN; a diverged number is null. Nine digits tell floats apart.
void Append(std::string* line, double x) {
  if (!std::isfinite(x)) {
    *line += "null";
  } else {
    fmt::format_to(std::back_inserter(*line), "{:.9g}", x);
  }
}

template <typename... Parts>
void AppendAll(std::string* line, const Parts&... parts) {
  (Append(line, parts), ...);
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

Status CannotWrite(const std::string& path, int error) {
  return Status::Failed(fmt::format(
      "cannot write the log {}: {}; name a file in a folder that exists and is "
      "writable",
      path, std::strerror(error)));
}

Status IsNoLog(const std::string& path) {
  return Status::Failed(fmt::format(
      "{} is there and is no log of a run; it was left as it is: choose "
      "another name for the log, or remove it",
      path));
}

}  // namespace

Status Log::Check(const std::string& path) {
  if (path.empty()) return Status::Ok();
  if (IsFolder(path)) return CannotWrite(path, EISDIR);
  // Pipes and devices have no contents to lose.
  if (!IsFile(path)) {
    const bool has_folder = IsFolder(FolderOf(path));
    return has_folder ? Status::Ok() : CannotWrite(path, ENOENT);
  }
  if (access(path.c_str(), W_OK) != 0) return CannotWrite(path, errno);
  TH_ASSIGN_OR_RETURN(const Before before, LookAt(path));
  return before.is_log ? Status::Ok() : IsNoLog(path);
}

Result<Log> Log::Open(const std::string& path, bool append) {
  if (path.empty()) return Log();
  // Appending in any case: two runs with one log then mix their lines, and tear
  // none.
  const int fd =
      open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_APPEND, 0666);
  if (fd < 0) return CannotWrite(path, errno);
  Log log(FileDescriptor(fd, path));
  // Pipes and devices have no contents to lose.
  if (!IsFile(path)) return log;
  TH_ASSIGN_OR_RETURN(const Before before, LookAt(path));
  if (!before.is_log) return IsNoLog(path);
  if (!append && ftruncate(fd, 0) != 0) return CannotWrite(path, errno);
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
  if (speed_key_.empty() || axis_ != event.axis) {
    axis_ = event.axis;
    speed_key_ = SpeedKey(axis_);
  }
  line_.clear();
  AppendAll(&line_, "{\"event\":\"step\",\"step\":"sv, event.step,
            ",\"epoch\":"sv, event.epoch, ",\"loss\":"sv, event.loss,
            ",\"learning_rate\":"sv, event.learning_rate,
            std::string_view(speed_key_), event.per_second);
  if (!std::isnan(event.loss_scale)) {
    AppendAll(&line_, ",\"loss_scale\":"sv, event.loss_scale,
              event.skipped ? ",\"skipped\":true"sv : ""sv);
  }
  line_ += "}\n";
  WriteLine(line_);
}

void Log::Reserve(size_t count) {
  constexpr size_t kLine = 400, kNumber = 21;
  line_.reserve(kLine + kNumber * count);
}

void Log::Rewiring(const RewireResult& done, int64_t step, size_t count,
                   FunctionRef<int64_t(size_t)> kept) {
  line_.clear();
  AppendAll(&line_, "{\"event\":\"rewire\",\"step\":"sv, step, ",\"pruned\":"sv,
            done.pruned, ",\"regrown\":"sv, done.regrown, ",\"threshold\":"sv,
            static_cast<double>(done.threshold), ",\"kept\":["sv);
  for (size_t m = 0; m < count; ++m) {
    AppendAll(&line_, m == 0 ? ""sv : ","sv, kept(m));
  }
  line_ += "]}\n";
  WriteLine(line_);
}

void Log::Epoch(const EpochEvent& event) {
  std::string line;
  AppendAll(&line, "{\"event\":\"epoch\",\"epoch\":"sv, event.epoch,
            ",\"train_loss\":"sv, event.train_loss);
  for (const EpochMetric& metric : event.metrics) {
    AppendAll(&line, Key("train_", metric.name), metric.train);
  }
  AppendAll(&line, ",\"test_loss\":"sv, event.test_loss);
  for (const EpochMetric& metric : event.metrics) {
    AppendAll(&line, Key("test_", metric.name), metric.test);
  }
  AppendAll(&line, SpeedKey(event.axis), event.per_second, ",\"seconds\":"sv,
            event.seconds, "}\n"sv);
  WriteLine(line);
}

void Log::Summary(const TrainSummary& summary) {
  WriteLine(SummaryJson(summary) + "\n");
}

}  // namespace thimble::train

namespace thimble {

const TestMetric& TrainSummary::metric(std::string_view name) const {
  const auto found = std::ranges::find(metrics, name, &TestMetric::name);
  TH_CHECK(found != metrics.end());
  return *found;
}

std::string SummaryJson(const TrainSummary& summary) {
  using train::AppendAll;
  using train::Key;
  std::string line;
  AppendAll(&line, "{\"event\":\"summary\",\"arena_bytes\":"sv,
            static_cast<int64_t>(summary.arena_bytes), ",\"rss_base_bytes\":"sv,
            summary.rss_base_bytes, ",\"rss_peak_bytes\":"sv,
            summary.rss_peak_bytes, ",\"rss_process_peak_bytes\":"sv,
            summary.rss_process_peak_bytes, train::SpeedKey(summary.axis),
            summary.per_second);
  for (const TestMetric& metric : summary.metrics) {
    AppendAll(&line, Key("best_test_", metric.name), metric.best,
              Key("test_", metric.name), metric.last);
  }
  AppendAll(&line, ",\"final_train_loss\":"sv, summary.final_train_loss,
            ",\"steps\":"sv, summary.steps);
  if (summary.skipped > 0) AppendAll(&line, ",\"skipped\":"sv, summary.skipped);
  if (summary.rewirings > 0) {
    AppendAll(&line, ",\"rewirings\":"sv, summary.rewirings);
  }
  AppendAll(&line, ",\"stopped\":"sv, summary.stopped ? "true"sv : "false"sv,
            ",\"weights_sha256\":\""sv, summary.weights_sha256, "\"}"sv);
  return line;
}

}  // namespace thimble
