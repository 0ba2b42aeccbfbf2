// SPDX-License-Identifier: Apache-2.0
#include "thimble/size.h"

#include <fmt/format.h>

#include <array>
#include <limits>
#include <optional>

#include "thimble/number.h"

namespace thimble {
namespace {

struct Unit {
  std::string_view name;  // lower case
  uint64_t bytes;
};

constexpr uint64_t kKilo = 1000;
constexpr uint64_t kKibi = 1024;
constexpr std::array<Unit, 10> kUnits = {{{"", 1},
                                          {"b", 1},
                                          {"kb", kKilo},
                                          {"mb", kKilo* kKilo},
                                          {"gb", kKilo* kKilo* kKilo},
                                          {"tb", kKilo* kKilo* kKilo* kKilo},
                                          {"kib", kKibi},
                                          {"mib", kKibi* kKibi},
                                          {"gib", kKibi* kKibi* kKibi},
                                          {"tib", kKibi* kKibi* kKibi* kKibi}}};

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

bool EqualsIgnoringCase(std::string_view text, std::string_view lower) {
  if (text.size() != lower.size()) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool upper = c >= 'A' && c <= 'Z';
    if ((upper ? c - 'A' + 'a' : c) != lower[i]) return false;
  }
  return true;
}

Status NotASize(std::string_view text, std::string_view why) {
  return Status::Usage(fmt::format(
      "'{}' is not a size: {}; write bytes as 123456, or a number with a unit "
      "such as 500kB, 6.7MB, 2GB (powers of 1000) or 512KiB, 8MiB, 1GiB "
      "(powers of 1024)",
      text, why));
}

// The size in hundredths of `unit`, to nearest or up. `unit` is a multiple of
// 1000 here, so a hundredth of it is whole.
uint64_t Hundredths(uint64_t bytes, uint64_t unit, bool up) {
  const uint64_t step = unit / 100;
  const uint64_t rest = bytes % step;
  return bytes / step + (up ? rest != 0 : rest >= step - step / 2);
}

std::string Format(uint64_t bytes, bool up) {
  if (bytes < kKilo) return fmt::format("{} B", bytes);
  constexpr std::array<std::string_view, 6> kNames = {"kB", "MB", "GB",
                                                      "TB", "PB", "EB"};
  uint64_t unit = kKilo;
  size_t name = 0;
  // The rounded figure decides, so that 999,999 is "1.00 MB".
  while (name + 1 < kNames.size() &&
         Hundredths(bytes, unit, up) >= 100 * kKilo) {
    unit *= kKilo;
    ++name;
  }
  const uint64_t figure = Hundredths(bytes, unit, up);
  return fmt::format("{}.{:02} {}", figure / 100, figure % 100, kNames[name]);
}

}  // namespace

Result<uint64_t> ParseSize(std::string_view text) {
  using Wide = unsigned __int128;
  constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
  size_t at = 0;
  while (at < text.size() && IsDigit(text[at])) ++at;
  if (at == 0) return NotASize(text, "it does not start with a digit");
  const std::optional<uint64_t> whole = ParseWhole(text.substr(0, at));
  if (!whole.has_value()) return NotASize(text, "it is too large");

  // The fraction as numerator / denominator; digits past the 18th are below a
  // millionth of a byte in every unit.
  uint64_t numerator = 0;
  uint64_t denominator = 1;
  bool fraction = false;
  if (at < text.size() && text[at] == '.') {
    fraction = true;
    const size_t first = ++at;
    for (; at < text.size() && IsDigit(text[at]); ++at) {
      if (at - first >= 18) continue;
      numerator = numerator * 10 + static_cast<uint64_t>(text[at] - '0');
      denominator *= 10;
    }
    if (at == first) return NotASize(text, "no digit follows the point");
  }

  while (at < text.size() && text[at] == ' ') ++at;
  const std::string_view name = text.substr(at);
  for (const Unit& unit : kUnits) {
    if (!EqualsIgnoringCase(name, unit.name)) continue;
    if (fraction && unit.bytes == 1) {
      return NotASize(text, "bytes come whole");
    }
    const Wide bytes =
        Wide{*whole} * unit.bytes + Wide{numerator} * unit.bytes / denominator;
    if (bytes > kMax) return NotASize(text, "it is too large");
    return static_cast<uint64_t>(bytes);
  }
  return NotASize(text, fmt::format("'{}' is not a unit", name));
}

std::string FormatBytes(uint64_t bytes) { return Format(bytes, false); }

std::string FormatBytesUp(uint64_t bytes) { return Format(bytes, true); }

}  // namespace thimble
