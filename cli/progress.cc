// SPDX-License-Identifier: Apache-2.0
#include "progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <string_view>

#include "thimble/rss.h"
#include "thimble/size.h"
#include "thimble/text.h"
#include "words.h"

namespace thimble::cli {
namespace {

// What snprintf wanted to write, cut to what fits, goes out in one write. A
// terminal that is gone is no reason to stop training.
void Send(int fd, std::string_view text) {
  [[maybe_unused]] const ssize_t ignored = write(fd, text.data(), text.size());
}
template <size_t kBytes>
void Send(int fd, const char (&buffer)[kBytes], int wanted) {
  if (wanted <= 0) return;
  Send(fd, {buffer, std::min(static_cast<size_t>(wanted), kBytes - 1)});
}

std::string Format(const char* format, double number) {
  char text[64];
  std::snprintf(text, sizeof(text), format, number);
  return text;
}

// Bytes of "\r\x1b[K", which take no place on the screen.
constexpr int kPrefixBytes = 4;

int TerminalWidth(int fd) {
  winsize size = {};
  if (ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col < 10) return 80;
  return size.ws_col;
}

}  // namespace

Progress::Progress(int fd, bool live, uint64_t arena_bytes,
                   std::chrono::milliseconds refresh)
    : fd_(fd),
      live_(live),
      arena_(FormatBytesUp(arena_bytes)),
      refresh_(refresh) {}

void Progress::OnStep(const StepEvent& event) {
  if (!live_) return;
  const auto now = std::chrono::steady_clock::now();
  if (open_ && now - last_ < refresh_ &&
      event.step_in_epoch != event.steps_per_epoch) {
    return;
  }
  last_ = now;
  open_ = true;
  const double rss = static_cast<double>(CurrentRssBytes()) / 1e6;
  char best[40] = "";
  if (std::isfinite(best_)) {
    std::snprintf(best, sizeof(best),
                  best_is_share_ ? " best %.2f%%" : " best %.4f",
                  best_is_share_ ? 100.0 * best_ : best_);
  }
  const auto left = std::llround(event.seconds_left);
  char line[256];
  const int wanted = std::snprintf(
      line, sizeof(line),
      "\r\x1b[Kepoch %lld/%lld  %3.0f%%  loss %.4f%s  %.0f %.*s/s  arena %s  "
      "rss %.1f MB  %lld:%02lld:%02lld left",
      static_cast<long long>(event.epoch), static_cast<long long>(event.epochs),
      100.0 * static_cast<double>(event.step_in_epoch) /
          static_cast<double>(event.steps_per_epoch),
      event.loss, best, event.per_second, static_cast<int>(event.axis.size()),
      event.axis.data(), arena_.c_str(), rss, left / 3600, left / 60 % 60,
      left % 60);
  Send(fd_, line, std::min(wanted, kPrefixBytes + TerminalWidth(fd_) - 1));
}

void Progress::OnEpoch(const EpochEvent& event) {
  std::string line = open_ ? "\r\x1b[K" : "";
  line += "epoch " + std::to_string(event.epoch) +
          Format("  loss %.4f", event.train_loss);
  for (const EpochMetric& metric : event.metrics) {
    // A share that is alone needs no name: which one does not change.
    const std::string name = event.metrics.size() == 1 && metric.is_share
                                 ? " "
                                 : " " + Printable(metric.name) + " ";
    line += "  train" + name +
            MetricText(metric.name, metric.train, metric.is_share);
    if (std::isnan(metric.test)) continue;
    line +=
        "  test" + name + MetricText(metric.name, metric.test, metric.is_share);
  }
  if (std::isfinite(event.per_second)) {
    line += Format("  %.0f ", event.per_second) + Printable(event.axis) + "/s";
  }
  line += Format("  %.1f s\n", event.seconds);
  Send(fd_, line);
  open_ = false;
  if (event.metrics.empty()) return;
  const EpochMetric& first = event.metrics[0];
  best_is_share_ = first.is_share;
  if (IsBetter(first.is_share, first.test, best_)) best_ = first.test;
}

void Progress::Close() {
  if (open_) Send(fd_, "\n", 1);
  open_ = false;
}

}  // namespace thimble::cli
