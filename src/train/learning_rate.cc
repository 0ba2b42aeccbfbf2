// SPDX-License-Identifier: Apache-2.0
#include "train/learning_rate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "thimble/number.h"

namespace thimble::train {
namespace {

constexpr const char* kForms =
    "use constant, cosine, inverse-sqrt, or steps:AT=FACTOR,... with AT in [0, "
    "1] rising, "
    "e.g. steps:0.5=0.2,0.75=0.04";

// Where inverse-sqrt begins to rise.
constexpr double kFirstRate = 1e-7;

double InverseSqrt(double base, double n, double warmup) {
  if (n > warmup) return base * std::sqrt(warmup / n);
  const double first = std::min(kFirstRate, base);
  return first + (base - first) * n / warmup;
}

}  // namespace

Result<Schedule> Schedule::Parse(const std::string& text) {
  Schedule schedule;
  if (text == "constant") return schedule;
  if (text == "cosine") {
    schedule.kind_ = Kind::kCosine;
    return schedule;
  }
  if (text == "inverse-sqrt") {
    schedule.kind_ = Kind::kInverseSqrt;
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
    if (equals == std::string::npos) return bad();
    const auto start = ParseDecimal<double>(item.substr(0, equals));
    const auto factor = ParseDecimal<double>(item.substr(equals + 1));
    if (!start.has_value() || !factor.has_value() || *start > 1.0 ||
        (!schedule.drops_.empty() && *start <= schedule.drops_.back().at)) {
      return bad();
    }
    schedule.drops_.push_back({*start, *factor});
    at = comma + 1;
  }
  return schedule;
}

double Schedule::Rate(double base, int64_t step, int64_t steps,
                      int64_t warmup) const {
  if (kind_ == Kind::kInverseSqrt) {
    return InverseSqrt(base, static_cast<double>(step + 1),
                       static_cast<double>(std::max<int64_t>(1, warmup)));
  }
  if (step < warmup) {
    return base * static_cast<double>(step + 1) / static_cast<double>(warmup);
  }
  const double progress =
      static_cast<double>(step - warmup) /
      static_cast<double>(std::max<int64_t>(1, steps - warmup));
  switch (kind_) {
    case Kind::kConstant:
    case Kind::kInverseSqrt:  // above
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

}  // namespace thimble::train
