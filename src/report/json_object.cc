// SPDX-License-Identifier: Apache-2.0
#include "report/json_object.h"

#include <fmt/format.h>

#include <cstdint>
#include <iterator>

#include "base/utf8.h"
#include "thimble/text.h"

namespace thimble::report {
namespace {

// REQUIRES: one character of UTF-8.
uint32_t CodePointOf(std::string_view character) {
  const auto first = static_cast<uint8_t>(character[0]);
  if (character.size() == 1) return first;
  uint32_t code = first & (0x7Fu >> character.size());
  for (const char c : character.substr(1)) {
    code = code << 6 | (static_cast<uint8_t>(c) & 0x3Fu);
  }
  return code;
}

void AddUtf16(uint32_t unit, std::string& text) {
  fmt::format_to(std::back_inserter(text), "\\u{:04x}", unit);
}

}  // namespace

void JsonObject::Add(std::string_view key, std::string_view text) {
  AddRaw(key, JsonText(text));
}

void JsonObject::Add(std::string_view key, double number) {
  std::string text = fmt::format("{}", number);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  AddRaw(key, text);
}

void JsonObject::AddRaw(std::string_view key, std::string_view json) {
  fmt::format_to(std::back_inserter(members_), "{}{}:{}",
                 members_.empty() ? "" : ",", JsonText(key), json);
}

std::string ScriptString(std::string_view text) {
  const std::string json = JsonText(text);
  std::string escaped;
  for (std::string_view left = json; !left.empty();) {
    const size_t bytes = Utf8Bytes(left);  // JsonText makes UTF-8
    const uint32_t code = CodePointOf(left.substr(0, bytes));
    if (code >= 0x10000) {
      AddUtf16(0xD800 + ((code - 0x10000) >> 10), escaped);
      AddUtf16(0xDC00 + ((code - 0x10000) & 0x3FF), escaped);
    } else if (code >= 0x7F || code == '<' || code == '>' || code == '&') {
      AddUtf16(code, escaped);
    } else {
      escaped += left[0];
    }
    left.remove_prefix(bytes);
  }
  return escaped;
}

}  // namespace thimble::report
