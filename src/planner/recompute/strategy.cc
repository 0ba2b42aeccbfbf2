// SPDX-License-Identifier: Apache-2.0
#include "planner/recompute/strategy.h"

#include <fmt/format.h>

#include <optional>
#include <string_view>

#include "thimble/number.h"

namespace thimble::planner {
namespace {

using Kind = Strategy::Kind;

enum class Number : uint8_t { kNone, kOptional, kNeeded };

struct Family {
  std::string_view name;
  Kind kind;
  Number number;
  bool may_be_starred;
};

constexpr Family kFamilies[] = {
    {"none", Kind::kNone, Number::kNone, false},
    {"no-bn", Kind::kNoBn, Number::kNone, false},
    {"every", Kind::kEvery, Number::kNeeded, false},
    {"residual", Kind::kResidual, Number::kNeeded, true},
    {"sqrt", Kind::kSqrt, Number::kNone, false},
    {"recursive", Kind::kRecursive, Number::kNeeded, false},
    {"revolve", Kind::kRevolve, Number::kOptional, false},
    {"auto", Kind::kAuto, Number::kNone, false},
};

constexpr uint64_t kMaxNumber = 1'000'000;

// `name` as a member of `family`, if it is one.
std::optional<Strategy> ParseAs(const Family& family, std::string_view name) {
  if (!name.starts_with(family.name)) return std::nullopt;
  std::string_view rest = name.substr(family.name.size());
  Strategy strategy{.kind = family.kind, .name = std::string(family.name)};
  if (rest.empty()) {
    if (family.number == Number::kNeeded) return std::nullopt;
    return strategy;
  }
  if (family.number == Number::kNone || rest[0] != '-') return std::nullopt;
  rest.remove_prefix(1);
  if (family.may_be_starred && (rest.ends_with('*') || rest.ends_with('s'))) {
    strategy.star = true;
    rest.remove_suffix(1);
  }
  const auto number = ParseWhole(rest);
  if (number.value_or(0) < 1 || *number > kMaxNumber) return std::nullopt;
  strategy.m = static_cast<int64_t>(*number);
  strategy.name =
      fmt::format("{}-{}{}", family.name, strategy.m, strategy.star ? "*" : "");
  return strategy;
}

}  // namespace

std::string KnownStrategies() {
  return "none, no-bn, every-M, residual-M, residual-M* (or residual-Ms), "
         "sqrt, recursive-K, revolve (or revolve-S), auto";
}

Result<Strategy> ParseStrategy(const std::string& name) {
  for (const Family& family : kFamilies) {
    if (auto strategy = ParseAs(family, name)) return *strategy;
  }
  return Status::Usage(fmt::format(
      "PlanOptions::recompute: there is no strategy '{}'; there are {}, where "
      "M, K and S are numbers from 1",
      name, KnownStrategies()));
}

}  // namespace thimble::planner
