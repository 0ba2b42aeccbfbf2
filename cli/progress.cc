// SPDX-License-Identifier: Apache-2.0
#include "progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "thimble/rss.h"
#include "thimble/size.h"

namespace thimble::cli {
namespace {

// What snprintf wanted to write, cut to what fits, goes out in one write. A
// terminal that is gone is no reason to stop training.
template <size_t kBytes>
void Send(int fd, const char (&buffer)[kBytes], int wanted) {
  if (wanted <= 0) return;
  const size_t bytes = std::min(static_cast<size_t>(wanted), kBytes - 1);
  [[maybe_unused]] const ssize_t ignored = write(fd, buffer, bytes);
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
  char accuracy[24] = "";
  if (best_accuracy_ >= 0) {
    std::snprintf(accuracy, sizeof(accuracy), " best %.2f%%",
                  100.0 * best_accuracy_);
  }
  const auto left = std::llround(event.seconds_left);
  char line[256];
  const int wanted = std::snprintf(
      line, sizeof(line),
      "\r\x1b[Kepoch %lld/%lld  %3.0f%%  loss %.4f%s  %.0f img/s  arena %s  "
      "rss %.1f MB  %lld:%02lld:%02lld left",
      static_cast<long long>(event.epoch), static_cast<long long>(event.epochs),
      100.0 * static_cast<double>(event.step_in_epoch) /
          static_cast<double>(event.steps_per_epoch),
      event.loss, accuracy, event.images_per_second, arena_.c_str(), rss,
      left / 3600, left / 60 % 60, left % 60);
  Send(fd_, line, std::min(wanted, kPrefixBytes + TerminalWidth(fd_) - 1));
}

void Progress::OnEpoch(const EpochEvent& event) {
  best_accuracy_ = std::max(best_accuracy_, event.test_accuracy);
  char speed[32] = "";
  if (std::isfinite(event.images_per_second)) {
    std::snprintf(speed, sizeof(speed), "  %.0f img/s",
                  event.images_per_second);
  }
  char line[256];
  Send(fd_, line,
       std::snprintf(line, sizeof(line),
                     "%sepoch %lld  loss %.4f  train %.2f%%  test "
                     "%.2f%%%s  %.1f s\n",
                     open_ ? "\r\x1b[K" : "",
                     static_cast<long long>(event.epoch), event.train_loss,
                     100.0 * event.train_accuracy, 100.0 * event.test_accuracy,
                     speed, event.seconds));
  open_ = false;
}

void Progress::Close() {
  if (open_) Send(fd_, "\n", 1);
  open_ = false;
}

}  // namespace thimble::cli
