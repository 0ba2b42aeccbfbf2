// SPDX-License-Identifier: Apache-2.0
#include "thimble/text.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>

#include "base/utf8.h"

namespace thimble {
namespace {

// U+0000 to U+001F and U+007F to U+009F. REQUIRES: one character of UTF-8.
bool IsControl(std::string_view character) {
  const auto first = static_cast<uint8_t>(character[0]);
  if (character.size() == 1) return first < 0x20 || first == 0x7F;
  return first == 0xC2 && static_cast<uint8_t>(character[1]) < 0xA0;
}

// One character of a JSON string.
std::string JsonCharacter(std::string_view character) {
  if (character == "\"") return "\\\"";
  if (character == "\\") return "\\\\";
  if (character.size() == 1 && IsControl(character)) {
    return fmt::format("\\u{:04x}", static_cast<int>(character[0]));
  }
  return std::string(character);
}

// `text` with each of its characters as `show` makes it, and `broken` for each
// byte that belongs to none.
template <typename Show>
std::string Shown(std::string_view text, std::string_view broken, Show show) {
  std::string shown;
  while (!text.empty()) {
    const size_t bytes = Utf8Bytes(text);
    shown += bytes == 0 ? std::string(broken) : show(text.substr(0, bytes));
    text.remove_prefix(bytes == 0 ? 1 : bytes);
  }
  return shown;
}

}  // namespace

std::string Printable(std::string_view text) {
  return Shown(text, "?", [](std::string_view character) {
    return IsControl(character) ? "?" : std::string(character);
  });
}

std::string JsonText(std::string_view text) {
  return '"' + Shown(text, "\uFFFD", JsonCharacter) + '"';
}

std::string JsonNumber(double number) {
  if (!std::isfinite(number)) return "null";
  return fmt::format("{:.9g}", number);
}

std::string Counted(int64_t count, std::string_view thing) {
  return fmt::format("{} {}{}", count, thing, count == 1 ? "" : "s");
}

}  // namespace thimble
