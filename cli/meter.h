// SPDX-License-Identifier: Apache-2.0
//
// How far something long is, on standard error: on a terminal one line that is
// renewed, elsewhere a line every ten seconds. One thread.
#pragma once

#include <chrono>
#include <string>

namespace thimble::cli {

class Meter {
 public:
  explicit Meter(bool live) : live_(live) {}

  // Whether it is time to show something again.
  bool IsDue();
  void Show(const std::string& text);
  // Before anything else is written.
  void Close();

 private:
  using Clock = std::chrono::steady_clock;
  bool live_;
  bool open_ = false;  // a live line is on the screen
  Clock::time_point last_ = Clock::now();
};

}  // namespace thimble::cli
