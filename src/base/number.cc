// SPDX-License-Identifier: Apache-2.0
#include "thimble/number.h"

#include <charconv>
#include <system_error>

namespace thimble {
namespace {

constexpr std::string_view kDigits = "0123456789";

template <typename T, typename... Form>
std::optional<T> FromAllOf(std::string_view text, Form... form) {
  T number{};
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, number, form...);
  if (error != std::errc() || at != end) return std::nullopt;
  return number;
}

}  // namespace

std::optional<uint64_t> ParseWhole(std::string_view text) {
  return FromAllOf<uint64_t>(text);
}

template <typename T>
std::optional<T> ParseDecimal(std::string_view text) {
  // It would take a sign, and words such as "inf".
  const bool is_number =
      !text.empty() &&
      (text[0] == '.' || kDigits.find(text[0]) != kDigits.npos);
  if (!is_number) return std::nullopt;
  return FromAllOf<T>(text, std::chars_format::general);
}

template std::optional<float> ParseDecimal<float>(std::string_view text);
template std::optional<double> ParseDecimal<double>(std::string_view text);

}  // namespace thimble
