// SPDX-License-Identifier: Apache-2.0
#include "meter.h"

#include <cstdio>

namespace thimble::cli {

bool Meter::IsDue() {
  const Clock::time_point now = Clock::now();
  const auto pause = live_ ? std::chrono::milliseconds(200)
                           : std::chrono::milliseconds(10'000);
  if (now - last_ < pause) return false;
  last_ = now;
  return true;
}

void Meter::Show(const std::string& text) {
  std::fprintf(stderr, "%s%s%s", live_ ? "\r\x1b[K" : "", text.c_str(),
               live_ ? "" : "\n");
  open_ = live_;
}

void Meter::Close() {
  if (open_) std::fputs("\r\x1b[K", stderr);
  open_ = false;
}

}  // namespace thimble::cli
