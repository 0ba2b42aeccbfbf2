// SPDX-License-Identifier: Apache-2.0
//
// Lines through a pipe, with a coding that is none: a letter is a token.
#include "translate/stream.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "base/test_folder.h"
#include "translate/test_decoder.h"

namespace thimble::translate {
namespace {

constexpr auto kEncode = [](std::string_view line,
                            std::vector<int32_t>* tokens) {
  for (char c : line) {
    if (c < 'a' || c > 'f') return Status::Failed("is not of our letters");
    tokens->push_back(c - 'a' + 3);
  }
  tokens->push_back(2);
  return Status::Ok();
};

constexpr auto kDecode = [](std::span<const int32_t> tokens,
                            std::string* line) {
  for (int32_t token : tokens) *line += static_cast<char>('A' + token);
};

class StreamTest : public ::testing::Test {
 protected:
  StreamTest()
      : network_(RoomFor(TestBeam(2, 7), 3, 64)),
        decoder_(network_.session(), TestBeam(2, 7)),
        window_(3) {
    options_.beam = 2;
    options_.max_source = 40;
  }

  Result<TranslateSummary> Translate(int in, int out) {
    return TranslateLines(decoder_, {kEncode, kDecode}, options_, window_, in,
                          out);
  }
  // By files.
  Result<TranslateSummary> Translate(const std::string& text,
                                     std::string* translated) {
    WriteTestFile(folder_.File("in"), text);
    const int in = open(folder_.File("in").c_str(), O_RDONLY);
    const int out =
        open(folder_.File("out").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    auto done = Translate(in, out);
    close(in);
    close(out);
    *translated = ReadTestFile(folder_.File("out"));
    return done;
  }
  std::string LineOf(const std::string& line) {
    std::string translated;
    EXPECT_TRUE(Translate(line + "\n", &translated).ok());
    return translated;
  }

  TestFolder folder_;
  TestTranslator network_;
  Decoder decoder_;
  Window window_;
  TranslateOptions options_;
};

TEST_F(StreamTest, TranslatesLinesInTheirOrder) {
  std::string text, expected;
  int64_t letters = 0;
  // Several windows.
  for (int i = 0; i < 150; ++i) {
    const std::string line(static_cast<size_t>(i * 7 % 23),
                           static_cast<char>('a' + i % 6));
    text += line + "\n";
    expected += line.empty() ? "\n" : LineOf(line);
    letters += std::ssize(line);
  }
  std::string translated;
  const auto done = Translate(text, &translated);
  ASSERT_TRUE(done.ok()) << done.status().message();
  EXPECT_EQ(translated, expected);
  EXPECT_EQ(done->lines, 150);
  EXPECT_EQ(done->source_tokens, letters);
  EXPECT_EQ(done->target_tokens + 150, std::ssize(translated));
  // Without the last line's end.
  text.pop_back();
  ASSERT_TRUE(Translate(text, &translated).ok());
  EXPECT_EQ(translated, expected);
}

TEST_F(StreamTest, OfNothingMakesNothing) {
  std::string translated;
  const auto done = Translate("", &translated);
  ASSERT_TRUE(done.ok());
  EXPECT_EQ(translated, "");
  EXPECT_EQ(done->lines, 0);
  ASSERT_TRUE(Translate("\n\n", &translated).ok());
  EXPECT_EQ(translated, "\n\n");
}

TEST_F(StreamTest, ListsTheBestWithNumbersAndScores) {
  options_.nbest = 2;
  std::string translated;
  ASSERT_TRUE(Translate("abc\n\nd\n", &translated).ok());
  std::vector<std::string> lines;
  for (size_t at = 0; at < translated.size();) {
    const size_t end = translated.find('\n', at);
    lines.push_back(translated.substr(at, end - at));
    at = end + 1;
  }
  ASSERT_EQ(lines.size(), 5u) << translated;
  const auto score = [](const std::string& line) {
    return std::stod(line.substr(line.find('\t') + 1));
  };
  EXPECT_TRUE(lines[0].starts_with("1\t-")) << lines[0];
  EXPECT_GE(score(lines[0]), score(lines[1]));
  EXPECT_EQ(lines[2], "2\t0.0000\t");
  EXPECT_TRUE(lines[4].starts_with("3\t-")) << lines[4];
  options_.nbest = 0;
  EXPECT_EQ(lines[0].substr(lines[0].rfind('\t') + 1) + "\n", LineOf("abc"));
}

TEST_F(StreamTest, WritesWhatIsBeforeALineThatIsWrong) {
  const std::string before = LineOf("abc") + LineOf("d");
  std::string translated;
  auto bad = Translate("abc\nd\nab9\nc\n", &translated);
  EXPECT_EQ(bad.status().code(), StatusCode::kFailed);
  EXPECT_NE(bad.status().message().find("line 3 of the input is not of our"),
            std::string::npos)
      << bad.status().message();
  EXPECT_EQ(translated, before);
  bad = Translate("abc\nd\n" + std::string(40, 'a') + "\nc\n", &translated);
  EXPECT_NE(bad.status().message().find("line 3 of the input has 41 tokens"),
            std::string::npos)
      << bad.status().message();
  EXPECT_EQ(translated, before);
  ASSERT_TRUE(Translate(std::string(39, 'a') + "\n", &translated).ok());
  bad = Translate("abc\nd\n" + std::string(3 << 20, 'a'), &translated);
  EXPECT_NE(bad.status().message().find("line 3 of the input is longer than"),
            std::string::npos)
      << bad.status().message();
  EXPECT_EQ(translated, before);
}

TEST_F(StreamTest, AnswersAsSoonAsTheInputRests) {
  int in[2], out[2];
  ASSERT_EQ(pipe(in) + pipe(out), 0);
  std::thread translator([&] {
    EXPECT_TRUE(Translate(in[0], out[1]).ok());
    close(out[1]);
  });
  LineReader answers(out[0]);
  for (const std::string line : {"abc", "", "fed"}) {
    ASSERT_TRUE(WriteText(in[1], line + "\n").ok());
    std::string_view answer;
    ASSERT_TRUE(*answers.Next(&answer));
    EXPECT_EQ(answer.empty(), line.empty());
  }
  close(in[1]);
  std::string_view none;
  EXPECT_FALSE(*answers.Next(&none));
  translator.join();
  close(in[0]);
  close(out[0]);
}

TEST_F(StreamTest, FailsWhereNobodyReads) {
  signal(SIGPIPE, SIG_IGN);
  WriteTestFile(folder_.File("in"), "abc\n");
  const int in = open(folder_.File("in").c_str(), O_RDONLY);
  int out[2];
  ASSERT_EQ(pipe(out), 0);
  close(out[0]);
  const auto done = Translate(in, out[1]);
  EXPECT_EQ(done.status().code(), StatusCode::kFailed);
  EXPECT_NE(done.status().message().find("Broken pipe"), std::string::npos);
  close(out[1]);
  close(in);
  EXPECT_NE(Translate(-1, -1).status().message().find("cannot be read"),
            std::string::npos);
}

}  // namespace
}  // namespace thimble::translate
