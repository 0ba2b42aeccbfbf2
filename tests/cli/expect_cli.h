// SPDX-License-Identifier: Apache-2.0
//
// For tests of the command-line tool: command lines as lists, and what is
// expected of what it said.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

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
