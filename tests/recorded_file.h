// SPDX-License-Identifier: Apache-2.0
//
// tests/golden/recorded_bits.json: what it holds, read, written and compared.
// One thread.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <ostream>

namespace thimble::testing {

using Json = nlohmann::json;

inline constexpr const char* kRecordedFile =
    THIMBLE_SOURCE_DIR "/tests/golden/recorded_bits.json";

// Empty where there is no file yet.
inline Json ReadRecorded() {
  std::ifstream file(kRecordedFile);
  return file.good() ? Json::parse(file) : Json::object();
}

// A line for each setting, so that a difference is a line.
inline void WriteLines(std::ostream& out, const Json& values,
                       const char* indent) {
  const char* comma = "";
  for (const auto& [name, value] : values.items()) {
    out << comma << "\n" << indent << Json(name).dump() << ": " << value.dump();
    comma = ",";
  }
}

inline void WriteRecorded(Json all) {
  std::ofstream file(kRecordedFile);
  file << "{\n \"plans\": {";
  WriteLines(file, all["plans"], "  ");
  file << "\n },\n \"targets\": {";
  const char* comma = "";
  for (const auto& [target, section] : all["targets"].items()) {
    file << comma << "\n  " << Json(target).dump()
         << ": {\n   \"compiler\": " << section["compiler"].dump()
         << ",\n   \"bits\": {";
    WriteLines(file, section["bits"], "    ");
    file << "\n   }\n  }";
    comma = ",";
  }
  file << "\n }\n}\n";
  file.close();
  ASSERT_TRUE(file.good()) << "cannot write " << kRecordedFile;
}

// Both by name. `want` must have all of `got`, and nothing else.
inline void ExpectRecorded(const Json& got, const Json& want) {
  for (const auto& [name, value] : got.items()) {
    if (!want.contains(name)) {
      ADD_FAILURE() << "no value is recorded of '" << name << "'";
      continue;
    }
    for (const auto& [key, part] : value.items()) {
      EXPECT_EQ(part.dump(), want[name].value(key, Json()).dump())
          << key << " of '" << name << "'";
    }
    EXPECT_EQ(value.size(), want[name].size()) << name;
  }
  for (const auto& [name, value] : want.items()) {
    EXPECT_TRUE(got.contains(name))
        << "nothing was computed of '" << name << "'";
  }
}

}  // namespace thimble::testing
