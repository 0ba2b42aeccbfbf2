// SPDX-License-Identifier: Apache-2.0
//
// A JSON object as it is written, member by member. The library that reads JSON
// takes seconds to compile where it is included, and writing needs none of it.
// One thread at a time.
#pragma once

#include <concepts>
#include <string>
#include <string_view>

namespace thimble::report {

class JsonObject {
 public:
  // REQUIRES for all: keys are given once.
  void Add(std::string_view key, std::string_view text);
  void Add(std::string_view key, const char* text) {
    Add(key, std::string_view(text));
  }
  void Add(std::string_view key, const JsonObject& object) {
    AddRaw(key, object.Text());
  }
  template <std::integral T>
  void Add(std::string_view key, T number) {
    if constexpr (std::same_as<T, bool>) {
      AddRaw(key, number ? "true" : "false");
    } else {
      AddRaw(key, std::to_string(number));
    }
  }
  // As few digits as give the number back, with a point or an exponent.
  // REQUIRES: it is finite.
  void Add(std::string_view key, double number);
  void AddNull(std::string_view key) { AddRaw(key, "null"); }
  // What is JSON already.
  void AddRaw(std::string_view key, std::string_view json);

  std::string Text() const { return "{" + members_ + "}"; }

 private:
  std::string members_;
};

// A JSON string in ASCII, for a <script>: nothing in it looks like a tag.
std::string ScriptString(std::string_view text);

}  // namespace thimble::report
