// SPDX-License-Identifier: Apache-2.0
//
// For tests of the command-line tool: command lines as lists, and what is
// expected of what it said.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/test_folder.h"
#include "run_cli.h"

namespace thimble {

using Json = nlohmann::json;
using Args = std::vector<std::string>;

inline Args operator+(Args a, const Args& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

inline Json LastLine(const std::string& text) {
  const size_t end = text.find_last_not_of('\n');
  const size_t begin = text.rfind('\n', end) + 1;
  return Json::parse(text.substr(begin, end + 1 - begin), nullptr, false);
}

inline void ExpectRefused(const Args& args, int exit_code,
                          const std::string& says) {
  const CliResult result = RunCli(args);
  const std::string command = ::testing::PrintToString(args);
  EXPECT_EQ(result.exit_code, exit_code) << command << "\n" << result.err;
  EXPECT_EQ(result.err.rfind("thimble: ", 0), 0u) << command << result.err;
  EXPECT_NE(result.err.find(says), std::string::npos)
      << command << " said: " << result.err;
  // Fields are for those who write C++.
  EXPECT_EQ(result.err.find("Options::"), std::string::npos)
      << command << " said: " << result.err;
}

// Changes the metadata of a safetensors file as another program would, without
// the sums that thimble writes.
template <typename Change>
void ChangeMetadata(const std::string& path, const Change& change) {
  const std::string file = ReadWholeFile(path);
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data(), sizeof(header_bytes));
  const size_t payload = sizeof(header_bytes) + header_bytes;
  Json header = Json::parse(file.substr(8, header_bytes), nullptr, false);
  ASSERT_TRUE(header.is_object()) << path;
  header["__metadata__"].erase("file_sha256");
  header["__metadata__"].erase("sha256");
  change(header["__metadata__"]);
  const std::string text = header.dump();
  header_bytes = text.size();
  std::string changed(sizeof(header_bytes), '\0');
  std::memcpy(changed.data(), &header_bytes, sizeof(header_bytes));
  WriteTestFile(path, changed + text + file.substr(payload));
}

// The word that follows `text`, which must be there.
inline std::string WordAfter(const std::string& message,
                             const std::string& text) {
  const size_t at = message.find(text);
  EXPECT_NE(at, std::string::npos) << text << " in: " << message;
  if (at == std::string::npos) return "0";
  const size_t begin = at + text.size();
  return message.substr(begin, message.find_first_of(" ,;\n", begin) - begin);
}

}  // namespace thimble
