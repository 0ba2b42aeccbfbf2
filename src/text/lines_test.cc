// SPDX-License-Identifier: Apache-2.0
#include "text/lines.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/test_folder.h"

namespace thimble::text {
namespace {

// All lines of a file with these bytes; an error's message comes last.
std::vector<std::string> LinesOf(const std::string& bytes) {
  const TestFolder folder;
  WriteTestFile(folder.File("f"), bytes);
  auto reader = LineReader::Open(folder.File("f"));
  std::vector<std::string> lines;
  std::string_view line;
  while (true) {
    const auto more = reader->Next(&line);
    if (!more.ok()) {
      const std::string& message = more.status().message();
      lines.push_back(message.substr(message.rfind("/f:") + 1));
      return lines;
    }
    if (!*more) break;
    lines.emplace_back(line);
  }
  EXPECT_EQ(reader->number(), lines.size());
  EXPECT_EQ(reader->bytes_read(), bytes.size());
  return lines;
}

using Lines = std::vector<std::string>;

TEST(LineReader, GivesLinesWithoutTheirEnds) {
  EXPECT_EQ(LinesOf(""), Lines());
  EXPECT_EQ(LinesOf("\n"), Lines{""});
  EXPECT_EQ(LinesOf("a\n\nb c\r\nd"), (Lines{"a", "", "b c", "d"}));
  EXPECT_EQ(LinesOf("\xef\xbb\xbfg\xc3\xbc\n\xef\xbb\xbf\n"),
            (Lines{"gü", "\xef\xbb\xbf"}));
}

TEST(LineReader, LinesMayBeLongerThanWhatIsReadAtOnce) {
  Lines lines;
  std::string bytes;
  for (size_t length = 1; length < 300'000; length = length * 3 + 1) {
    lines.emplace_back(length, static_cast<char>('a' + lines.size()));
    bytes += lines.back() + "\n";
  }
  EXPECT_EQ(LinesOf(bytes), lines);
}

TEST(LineReader, WhatIsNoTextIsRefusedByFileAndLine) {
  EXPECT_EQ(LinesOf("a\nb\xff\nc"),
            (Lines{"a",
                   "f:2: byte 2 of the line is no UTF-8; convert the text "
                   "(iconv), or unpack it if it is compressed"}));
  EXPECT_EQ(LinesOf(std::string("a\0\n", 3)),
            Lines{"f:1: the line has a byte 0; this is no text, or not UTF-8"});
  for (const size_t length : {1'048'577u, 2'000'000u, 3'000'000u}) {
    const Lines lines = LinesOf(std::string(length, 'x'));
    ASSERT_EQ(lines.size(), 1u);
    EXPECT_NE(lines[0].find("f:1: the line is longer than 1048576 bytes"),
              std::string::npos);
  }
  EXPECT_EQ(LinesOf(std::string(1'048'576, 'x'))[0].size(), 1'048'576u);
}

TEST(ForEachWord, DividesAtWhiteSpace) {
  Lines words;
  const auto add = [&words](std::string_view word) {
    words.emplace_back(word);
  };
  ForEachWord("", add);
  ForEachWord(" \t ", add);
  EXPECT_EQ(words, Lines());
  ForEachWord(
      "  a b\tc\xc2\xa0"
      "d ",
      add);
  EXPECT_EQ(words, (Lines{"a", "b",
                          "c\xc2\xa0"
                          "d"}));
}

}  // namespace
}  // namespace thimble::text
