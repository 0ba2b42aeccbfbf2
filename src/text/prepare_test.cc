// SPDX-License-Identifier: Apache-2.0
//
// Text on its way to tokens and back.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cmath>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/test_folder.h"
#include "thimble/prepare_text.h"
#include "thimble/text_data.h"

namespace thimble::text {
namespace {

using Pair = std::array<std::string, 2>;

// Sentences of made-up words; some occur often.
std::vector<Pair> SomeText(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  const auto sentence = [&random](std::string_view letters) {
    std::string line;
    for (size_t words = 1 + random() % 9; words > 0; --words) {
      if (!line.empty()) line += ' ';
      std::mt19937 word(static_cast<uint32_t>(random() % (1 + random() % 60)));
      for (size_t i = 1 + word() % 7; i > 0; --i) {
        line += letters[word() % letters.size()];
      }
    }
    return line;
  };
  std::vector<Pair> pairs;
  for (size_t i = 0; i < count; ++i) {
    pairs.push_back({sentence("abcdefgh"), sentence("klmnopqrst")});
  }
  return pairs;
}

// What a split's records say, by line.
std::map<uint32_t, Pair> SentencesOf(const std::string& dir, TextSplit split) {
  const auto data = TextData::Open(dir);
  EXPECT_TRUE(data.ok()) << data.status().message();
  const std::array dictionaries = {*Dictionary::Read(dir + "/source.dict"),
                                   *Dictionary::Read(dir + "/target.dict")};
  std::vector<std::byte> bytes((*data)->bytes(split));
  EXPECT_TRUE((*data)->Read(split, 0, bytes).ok());
  std::map<uint32_t, Pair> sentences;
  for (size_t at = 0; at < bytes.size();) {
    const TextRecord record = TextRecord::At(std::span(bytes).subspan(at));
    const auto* tokens =
        reinterpret_cast<const uint16_t*>(&bytes[at + TextRecord::kHeadBytes]);
    const std::vector<int32_t> source(tokens, tokens + record.source);
    const std::vector<int32_t> target(tokens + record.source,
                                      tokens + record.source + record.target);
    EXPECT_FALSE(sentences.contains(record.line));
    sentences[record.line] = {dictionaries[0].Join(source),
                              dictionaries[1].Join(target)};
    at += record.bytes();
  }
  return sentences;
}

std::map<uint32_t, Pair> ByLine(const std::vector<Pair>& pairs) {
  std::map<uint32_t, Pair> lines;
  for (size_t i = 0; i < pairs.size(); ++i) {
    lines[static_cast<uint32_t>(i)] = pairs[i];
  }
  return lines;
}

class PrepareTest : public ::testing::Test {
 protected:
  PrepareTest() {
    options_.dir = folder_.path();
    options_.source = "xx";
    options_.target = "yy";
    options_.out = folder_.File("out");
    options_.merges = 60;
  }

  void Write(const std::string& name, const std::vector<Pair>& pairs) {
    std::string sides[2];
    for (const Pair& pair : pairs) {
      for (size_t side = 0; side < 2; ++side) sides[side] += pair[side] + "\n";
    }
    WriteTestFile(folder_.File(name + ".xx"), sides[0]);
    WriteTestFile(folder_.File(name + ".yy"), sides[1]);
  }

  PrepareSummary Prepare() {
    auto done = PrepareText(options_);
    EXPECT_TRUE(done.ok()) << done.status().message();
    return done.ok() ? *done : PrepareSummary();
  }
  std::string Refusal() {
    const auto done = PrepareText(options_);
    EXPECT_FALSE(done.ok());
    EXPECT_FALSE(IsFolder(options_.out));
    return done.ok() ? "" : done.status().message();
  }
  std::string All(const std::string& out) const {
    std::string all;
    for (const char* name : {"codes", "source.dict", "target.dict",
                             "train.tokens", "prepared.json"}) {
      all += ReadTestFile(out + "/" + name);
    }
    return all;
  }
  static void ExpectHas(const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }

  TestFolder folder_;
  PrepareOptions options_;
};

TEST_F(PrepareTest, TheTextComesBackFromItsTokens) {
  const auto train = SomeText(500, 1), valid = SomeText(20, 2),
             test = SomeText(30, 3);
  Write("train", train);
  Write("valid", valid);
  Write("test", test);
  const PrepareSummary done = Prepare();
  EXPECT_EQ(done.out, options_.out);
  EXPECT_EQ(done.codes, 60);
  EXPECT_EQ(SentencesOf(options_.out, TextSplit::kTrain), ByLine(train));
  EXPECT_EQ(SentencesOf(options_.out, TextSplit::kValid), ByLine(valid));
  EXPECT_EQ(SentencesOf(options_.out, TextSplit::kTest), ByLine(test));
  const auto data = TextData::Open(options_.out);
  ASSERT_TRUE(data.ok());
  for (size_t i = 0; i < kTextSplits; ++i) {
    ASSERT_TRUE(done.splits[i].has_value());
    const auto split = static_cast<TextSplit>(i);
    for (const TextSide side : {TextSide::kSource, TextSide::kTarget}) {
      const auto s = static_cast<size_t>(side);
      EXPECT_EQ(done.splits[i]->tokens[s], (*data)->tokens(split, side));
      EXPECT_EQ(done.splits[i]->longest[s], (*data)->longest(split, side));
      EXPECT_EQ(done.splits[i]->unknown[s], 0);
      EXPECT_EQ(done.vocabulary[s], (*data)->vocabulary(side));
    }
  }
}

TEST_F(PrepareTest, AnEncoderMakesTheSameTokens) {
  const auto train = SomeText(300, 1);
  Write("train", train);
  Prepare();
  const auto encoder = SentenceEncoder::Open(options_.out, TextSide::kTarget);
  ASSERT_TRUE(encoder.ok()) << encoder.status().message();
  std::vector<int32_t> tokens;
  for (const Pair& pair : train) {
    tokens.clear();
    EXPECT_EQ((*encoder)->Encode("  " + pair[1], &tokens), 0);
    EXPECT_EQ(tokens.back(), kEndToken);
    EXPECT_EQ((*encoder)->dictionary().Join(tokens), pair[1]);
  }
  tokens.clear();
  EXPECT_EQ((*encoder)->Encode("ü k!", &tokens), 2);
  ASSERT_EQ(tokens.size(), 4u);
  EXPECT_EQ((*encoder)->dictionary().Join(tokens), "<unk> k<unk>");
  tokens.clear();
  EXPECT_EQ((*encoder)->Encode("", &tokens), 0);
  EXPECT_EQ(tokens, std::vector<int32_t>{kEndToken});
}

TEST_F(PrepareTest, LittleMemoryOfTheSortChangesNothing) {
  Write("train", SomeText(2000, 1));
  Prepare();
  const std::string whole = All(options_.out);
  options_.codes = options_.out + "/codes";
  for (const uint64_t memory : {uint64_t{1} << 16, uint64_t{1}}) {
    options_.memory = memory;
    options_.out = folder_.File("out" + std::to_string(memory));
    Prepare();
    EXPECT_EQ(All(options_.out), whole) << memory;
  }
}

TEST_F(PrepareTest, TheSeedShufflesSentencesOfOneLengthAlone) {
  Write("train", SomeText(500, 1));
  Prepare();
  const std::string first = All(options_.out);
  const auto sentences = SentencesOf(options_.out, TextSplit::kTrain);
  options_.seed = 2;
  options_.out = folder_.File("other");
  Prepare();
  EXPECT_NE(All(options_.out), first);
  EXPECT_EQ(SentencesOf(options_.out, TextSplit::kTrain), sentences);
}

TEST_F(PrepareTest, GivenDictionariesLeaveTheRestUnknown) {
  Write("train", {{"aa ab", "xx xy"}, {"ab aa", "xy xx"}});
  options_.merges = 0;
  Prepare();
  options_.dictionaries = options_.out;
  options_.out = folder_.File("other");
  Write("train", {{"aa ac", "xx xy"}, {"ca", "xy"}});
  Write("valid", {{"ab", "zz"}});
  const PrepareSummary done = Prepare();
  // "c" as a word's end, and "c@@".
  EXPECT_EQ(done.splits[0]->unknown, (BySide{2, 0}));
  EXPECT_EQ(done.splits[0]->tokens, (BySide{8, 8}));
  EXPECT_EQ(done.splits[1]->unknown, (BySide{0, 2}));
  EXPECT_EQ(SentencesOf(options_.out, TextSplit::kTrain).at(0)[0], "aa a<unk>");
  EXPECT_EQ(ReadTestFile(options_.out + "/source.dict"),
            ReadTestFile(options_.dictionaries + "/source.dict"));
}

TEST_F(PrepareTest, WhatCannotBeTrainedOnIsLeftOutAndCounted) {
  const std::string seven = "a b c d e f g";
  const std::vector<Pair> pairs = {
      {"a", "b"},           {"", "b"},          {"a", "  "}, {seven, "b c d e"},
      {"a b", "b c d e f"}, {"a b", "b c d e"}, {"", ""}};
  for (const char* name : {"train", "valid", "test"}) Write(name, pairs);
  options_.merges = 0;
  options_.max_length = 7;
  options_.ratio = 2;
  const PrepareSummary done = Prepare();
  for (const size_t split : {0u, 1u}) {
    const PreparedSplit& counted = *done.splits[split];
    EXPECT_EQ(counted.lines, 7);
    EXPECT_EQ(counted.pairs, 2);
    EXPECT_EQ(counted.empty, 3);
    EXPECT_EQ(counted.too_long, 1);
    EXPECT_EQ(counted.uneven, 1);
  }
  EXPECT_EQ(SentencesOf(options_.out, TextSplit::kTrain),
            (std::map<uint32_t, Pair>{{0, pairs[0]}, {5, pairs[5]}}));
  EXPECT_EQ(done.splits[2]->pairs, 7);
  EXPECT_EQ(SentencesOf(options_.out, TextSplit::kTest).at(3)[1], "b c d e");
  // What was left out has no number.
  EXPECT_EQ(ReadTestFile(options_.out + "/source.dict"), "a 2\nb 1\n");
}

TEST_F(PrepareTest, FilesAreFoundByTheirNames) {
  Write("train", SomeText(20, 1));
  Write("dev", SomeText(4, 2));
  Write("test2016", SomeText(5, 3));
  PrepareSummary done = Prepare();
  EXPECT_FALSE(done.splits[1].has_value());
  EXPECT_FALSE(done.splits[2].has_value());
  options_.valid = "dev";
  options_.test = "test2016";
  options_.out.clear();
  done = Prepare();
  EXPECT_EQ(done.out, folder_.File("prepared-xx-yy"));
  EXPECT_EQ(done.splits[1]->pairs, 4);
  EXPECT_EQ(done.splits[2]->pairs, 5);
  options_.out = folder_.File("third");
  options_.test = "test2017";
  ExpectHas(Refusal(), "cannot open " + folder_.File("test2017.xx"));
}

TEST_F(PrepareTest, BadTextIsRefusedByFileAndLineAndNothingIsLeft) {
  const std::vector<Pair> good = {{"a b", "c"}, {"a", "c d"}};
  const int files = [&] {
    Write("train", good);
    return folder_.CountFiles();
  }();
  const auto refusal = [&](const std::string& source,
                           const std::string& target) {
    WriteTestFile(folder_.File("train.xx"), source);
    WriteTestFile(folder_.File("train.yy"), target);
    std::string message = Refusal();
    EXPECT_EQ(folder_.CountFiles(), files);
    return message;
  };
  ExpectHas(refusal("a\nb\nc\n", "a\n"),
            "train.xx has 3 lines and " + folder_.File("train.yy") + " has 1;");
  ExpectHas(refusal("a\n", "a\nb\n"), "has 2; line by line they must mean");
  ExpectHas(refusal("a\nb\n", "a\n\xc3\n"), "train.yy:2: byte 1 of the line");
  ExpectHas(refusal(std::string("a\n\0\n", 4), "a\nb\n"),
            "train.xx:2: the line has a byte 0");
  ExpectHas(refusal("", ""), "are empty");
  ExpectHas(refusal("\n\n", "a\nb\n"),
            "no pair of 2 lines of " + folder_.File("train.xx") +
                " is left to train on: a side of 2 has no words");
  ExpectHas(refusal("a\n", std::string(2 << 20, 'b')),
            "train.yy:1: the line is longer than 1048576 bytes");
  // Also where it comes late.
  Write("train", good);
  Write("valid", good);
  WriteTestFile(folder_.File("valid.yy"), "a\n\xff\n");
  ExpectHas(Refusal(), "valid.yy:2: byte 1");
  std::remove(folder_.File("valid.yy").c_str());
  ExpectHas(Refusal(), "cannot open " + folder_.File("valid.yy"));
}

TEST_F(PrepareTest, BadCodesAndDictionariesAreRefusedByTheirNames) {
  Write("train", {{"a b", "c"}});
  WriteTestFile(folder_.File("codes"), "a b\n");
  options_.codes = folder_.File("codes");
  ExpectHas(Refusal(), folder_.File("codes") + ":1: these are no byte-pair");
  options_.codes.clear();
  Prepare();
  options_.dictionaries = options_.out;
  options_.out = folder_.File("other");
  WriteTestFile(options_.dictionaries + "/target.dict", "a 1\na 2\n");
  ExpectHas(Refusal(), options_.dictionaries + "/target.dict:2: the word of");
}

TEST_F(PrepareTest, OptionsThatMakeNoSenseAreRefused) {
  Write("train", {{"a b", "c"}});
  const auto refusal = [&](const PrepareOptions& options) {
    const auto done = PrepareText(options);
    EXPECT_EQ(done.status().code(), StatusCode::kUsage);
    return done.status().message();
  };
  const auto with = [&](auto change) {
    PrepareOptions options = options_;
    change(options);
    return options;
  };
  ExpectHas(refusal(with([](auto& o) { o.source = ""; })), "''");
  ExpectHas(refusal(with([](auto& o) { o.target = "a/b"; })), "'a/b'");
  ExpectHas(refusal(with([](auto& o) { o.max_length = 1; })),
            "PrepareOptions::max_length must be from 2 to 65535, got 1");
  ExpectHas(refusal(with([](auto& o) { o.merges = -1; })), "got -1");
  ExpectHas(refusal(with([](auto& o) { o.ratio = 0.5; })), "got 0.5");
  ExpectHas(refusal(with([](auto& o) { o.ratio = NAN; })), "got nan");
  ExpectHas(
      PrepareText(with([](auto& o) { o.dir += "/no"; })).status().message(),
      "no is no folder");
}

TEST_F(PrepareTest, WhatIsThereStays) {
  Write("train", SomeText(20, 1));
  WriteTestFile(options_.out, "mine");
  const auto done = PrepareText(options_);
  ASSERT_FALSE(done.ok());
  ExpectHas(done.status().message(), "out is there already; remove it");
  EXPECT_EQ(ReadTestFile(options_.out), "mine");
}

TEST_F(PrepareTest, AStopLeavesNothing) {
  Write("train", SomeText(3000, 1));
  Write("valid", SomeText(20, 1));
  const int files = folder_.CountFiles();
  std::atomic<bool> stop{true};
  options_.stop = &stop;
  EXPECT_EQ(Refusal(), "stopped; nothing was written");
  // At each of the things that take long.
  for (const std::string doing : {"counting words", "learning codes",
                                  "dividing words", "writing sentences"}) {
    stop = false;
    options_.progress = [&](const PrepareProgress& progress) {
      EXPECT_LE(progress.done, progress.total);
      if (progress.doing == doing) stop = true;
    };
    EXPECT_EQ(Refusal(), "stopped; nothing was written") << doing;
    EXPECT_TRUE(stop);
    EXPECT_EQ(folder_.CountFiles(), files);
  }
}

TEST_F(PrepareTest, RareWordsAreNotLearnedFromWhereMemoryIsShort) {
  std::vector<Pair> pairs;
  for (int i = 0; i < 2000; ++i) {
    pairs.push_back({"often " + std::to_string(i * 7919), "often"});
  }
  Write("train", pairs);
  options_.memory = 20'000;
  const PrepareSummary done = Prepare();
  EXPECT_GT(done.forgotten, 1000);
  EXPECT_EQ(SentencesOf(options_.out, TextSplit::kTrain), ByLine(pairs));
}

}  // namespace
}  // namespace thimble::text
