// SPDX-License-Identifier: Apache-2.0
#include "optim/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numbers>

namespace thimble::optim {
namespace {

constexpr const char* kForms =
    "use constant, cosine, or steps:AT=FACTOR,... with AT in [0, 1] rising, "
    "e.g. steps:0.5=0.2,0.75=0.04";

// The whole of `text` as a finite number >= 0.
bool ParseNumber(const std::string& text, double* number) {
  char* end = nullptr;
  *number = std::strtod(text.c_str(), &end);
  return !text.empty() && *end == '\0' && std::isfinite(*number) &&
         *number >= 0.0;
}

}  // namespace

Result<Schedule> Schedule::Parse(const std::string& text) {
  Schedule schedule;
  if (text == "constant") return schedule;
  if (text == "cosine") {
    schedule.kind_ = Kind::kCosine;
    return schedule;
  }
  const auto bad = [&] {
    return Status::Usage(
        fmt::format("'{}' is no learning-rate schedule; {}", text, kForms));
  };
  const std::string prefix = "steps:";
  if (text.rfind(prefix, 0) != 0) return bad();
  schedule.kind_ = Kind::kPiecewise;
  size_t at = prefix.size();
  while (at <= text.size()) {
    const size_t comma = std::min(text.find(',', at), text.size());
    const std::string item = text.substr(at, comma - at);
    const size_t equals = item.find('=');
    Drop drop;
    if (equals == std::string::npos ||
        !ParseNumber(item.substr(0, equals), &drop.at) ||
        !ParseNumber(item.substr(equals + 1), &drop.factor) || drop.at > 1.0 ||
        (!schedule.drops_.empty() && drop.at <= schedule.drops_.back().at)) {
      return bad();
    }
    schedule.drops_.push_back(drop);
    at = comma + 1;
  }
  return schedule;
}

double Schedule::Rate(double base, int64_t step, int64_t steps,
                      int64_t warmup) const {
  if (step < warmup) {
    return base * static_cast<double>(step + 1) / static_cast<double>(warmup);
  }
  const double progress =
      static_cast<double>(step - warmup) /
      static_cast<double>(std::max<int64_t>(1, steps - warmup));
  switch (kind_) {
    case Kind::kConstant:
      return base;
    case Kind::kCosine:
      return base * 0.5 *
             (1.0 + std::cos(std::numbers::pi * std::min(progress, 1.0)));
    case Kind::kPiecewise: {
      double factor = 1.0;
      for (const Drop& drop : drops_) {
        if (progress >= drop.at) factor = drop.factor;
      }
      return base * factor;
    }
  }
  return base;
}

}  // namespace thimble::optim
