// SPDX-License-Identifier: Apache-2.0
#include "text/bpe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/utf8.h"

namespace thimble::text {
namespace {

using Symbols = std::vector<std::string>;

Symbols CharactersOf(std::string_view word) {
  Symbols symbols;
  while (!word.empty()) {
    symbols.emplace_back(word.substr(0, Utf8Bytes(word)));
    word.remove_prefix(symbols.back().size());
  }
  symbols.back() += kWordEnd;
  return symbols;
}

// Neighbours that are the pair become one, from left to right.
Symbols Merged(const Symbols& symbols, const PairCode& code) {
  Symbols merged;
  for (size_t i = 0; i < symbols.size(); ++i) {
    const bool meets = i + 1 < symbols.size() && symbols[i] == code.left &&
                       symbols[i + 1] == code.right;
    merged.push_back(meets ? code.left + code.right : symbols[i]);
    if (meets) ++i;
  }
  return merged;
}

// The definition: all pairs are counted anew for each code.
PairCodes LearnSlowly(const std::map<std::string, int>& words, int merges) {
  std::vector<std::pair<Symbols, int>> texts;
  for (const auto& [word, count] : words) {
    texts.emplace_back(CharactersOf(word), count);
  }
  PairCodes codes;
  while (std::ssize(codes) < merges) {
    std::map<std::pair<std::string, std::string>, int> counts;
    for (const auto& [symbols, count] : texts) {
      for (size_t i = 0; i + 1 < symbols.size(); ++i) {
        counts[{symbols[i], symbols[i + 1]}] += count;
      }
    }
    int most = 1;
    PairCode best;
    for (const auto& [pair, count] : counts) {  // in rising order
      if (count < most || count < 2) continue;
      most = count;
      best = {pair.first, pair.second};
    }
    if (most < 2) break;
    codes.push_back(best);
    for (auto& [symbols, count] : texts) symbols = Merged(symbols, best);
  }
  return codes;
}

Symbols SplitSlowly(const PairCodes& codes, const std::string& word) {
  Symbols symbols = CharactersOf(word);
  while (true) {
    std::optional<size_t> first;
    for (size_t rank = 0; rank < codes.size() && !first.has_value(); ++rank) {
      if (Merged(symbols, codes[rank]).size() < symbols.size()) first = rank;
    }
    if (!first.has_value()) break;
    symbols = Merged(symbols, codes[*first]);
  }
  symbols.back().resize(symbols.back().size() - kWordEnd.size());
  return symbols;
}

Symbols PiecesOf(Segmenter& segmenter, const std::string& word) {
  Symbols pieces;
  std::string piece;
  ForEachPiece(segmenter, word, &piece, [&](const std::string& text) {
    pieces.push_back(text);
    if (pieces.back().ends_with(kGoesOn)) {
      pieces.back().resize(pieces.back().size() - kGoesOn.size());
    }
  });
  return pieces;
}

PairCodes Learn(const std::map<std::string, int>& words, int64_t merges) {
  WordCounts counts(size_t{1} << 20);
  for (const auto& [word, count] : words) {
    counts.Add(word, static_cast<uint64_t>(count));
  }
  auto codes = LearnCodes(counts, merges, [](int64_t) { return Status::Ok(); });
  EXPECT_TRUE(codes.ok());
  return *std::move(codes);
}

// Few letters, so that pairs overlap and symbols can be made in several ways.
std::string RandomWord(std::mt19937& random, size_t letters, size_t most) {
  static const Symbols kLetters = {"a", "b", "ü", "語", "-",
                                   "<", "/", "w", ">"};
  std::string word;
  for (size_t i = 1 + random() % most; i > 0; --i) {
    word += kLetters[random() % letters];
  }
  return word;
}

TEST(LearnCodes, TakesTheMostFrequentPairAndOfEqualsTheGreatest) {
  // The last two are as frequent as "e w".
  const std::map<std::string, int> words = {
      {"low", 5}, {"lowest", 2}, {"newer", 6}, {"wider", 3}};
  EXPECT_EQ(CodesText(Learn(words, 4)),
            "#version: 0.2\ne r</w>\nl o\nw er</w>\nn e\n");
  // A pair that is there once is none.
  EXPECT_TRUE(Learn({{"ab", 1}, {"cd", 1}}, 10).empty());
  EXPECT_EQ(Learn({{"ab", 1}, {"xab", 1}}, 10), (PairCodes{{"a", "b</w>"}}));
  EXPECT_TRUE(Learn(words, 0).empty());
}

TEST(LearnCodes, AgreesWithCountingAnewForEachCode) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    std::map<std::string, int> words;
    const size_t letters = 1 + random() % 9;
    for (size_t i = 1 + random() % 12; i > 0; --i) {
      words[RandomWord(random, letters, 14)] = 1 + random() % 4;
    }
    const int merges = static_cast<int>(random() % 40);
    EXPECT_EQ(Learn(words, merges), LearnSlowly(words, merges)) << round;
  }
}

TEST(LearnCodes, EndsWhereItIsTold) {
  std::map<std::string, int> words;
  std::mt19937 random(1);
  for (int i = 0; i < 300; ++i) words[RandomWord(random, 9, 9)] = 2;
  WordCounts counts(size_t{1} << 20);
  for (const auto& [word, count] : words) counts.Add(word, 2);
  const auto codes = LearnCodes(
      counts, 1000, [](int64_t) { return Status::Failed("enough"); });
  ASSERT_FALSE(codes.ok());
  EXPECT_EQ(codes.status().message(), "enough");
}

TEST(Segmenter, AgreesWithTheDefinition) {
  std::mt19937 random(2);
  for (int round = 0; round < 80; ++round) {
    // Codes in any order, also such as nobody would learn.
    PairCodes codes;
    std::map<std::string, int> words;
    const size_t letters = 1 + random() % 9;
    for (int i = 0; i < 8; ++i) words[RandomWord(random, letters, 10)] = 2;
    codes = Learn(words, 30);
    if (round % 2 == 1) std::shuffle(codes.begin(), codes.end(), random);
    if (!codes.empty()) codes.push_back(codes[random() % codes.size()]);
    Segmenter segmenter(codes, round % 3 == 0 ? 0 : 2000);
    for (int i = 0; i < 30; ++i) {
      const std::string word = RandomWord(random, letters, 16);
      EXPECT_EQ(PiecesOf(segmenter, word), SplitSlowly(codes, word));
    }
  }
}

TEST(Segmenter, KnowsAWordAgain) {
  const PairCodes codes = {{"l", "o"}, {"lo", "w</w>"}};
  Segmenter segmenter(codes);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(PiecesOf(segmenter, "low"), Symbols{"low"});
    EXPECT_EQ(PiecesOf(segmenter, "lows"), (Symbols{"lo", "w", "s"}));
    EXPECT_EQ(PiecesOf(segmenter, "x"), Symbols{"x"});
  }
}

// A line without spaces is one word.
TEST(Segmenter, LongWordsTakeNoLongTime) {
  const PairCodes codes = Learn({{"abababab", 9}, {"ba", 2}}, 10);
  Segmenter segmenter(codes);
  std::string word;
  while (word.size() < 300'000) word += "ab";
  EXPECT_GT(PiecesOf(segmenter, word).size(), 1000u);
}

TEST(ParseCodes, ReadsWhatCodesTextWrites) {
  const PairCodes codes = Learn({{"größer", 5}, {"großes", 3}}, 10);
  ASSERT_GT(codes.size(), 3u);
  EXPECT_EQ(*ParseCodes("f", CodesText(codes)), codes);
  EXPECT_EQ(*ParseCodes("f", "#version: 0.2\r\na b \r\nab c</w>"),
            (PairCodes{{"a", "b"}, {"ab", "c</w>"}}));
  EXPECT_TRUE(ParseCodes("f", "#version: 0.2")->empty());
}

TEST(ParseCodes, RefusesWhatIsNone) {
  const auto message = [](const std::string& text) {
    const auto codes = ParseCodes("f", text);
    return codes.ok() ? "" : codes.status().message();
  };
  for (const char* text : {"", "a b\n", "#version: 0.1\na b\n", "\n"}) {
    EXPECT_NE(message(text).find("f:1: these are no byte-pair codes"),
              std::string::npos)
        << text;
  }
  for (const char* line : {"", "a", "a b c", " a b", "a  b"}) {
    EXPECT_EQ(message("#version: 0.2\na b\n" + std::string(line) + "\n"),
              "f:3: a code is two symbols with a space between")
        << line;
  }
  EXPECT_EQ(message("#version: 0.2\na \xff\n"), "f:2: the line is no UTF-8");
}

TEST(ParseCodes, AnyBytesAreReadOrRefused) {
  const std::string good =
      CodesText(Learn({{"größer", 5}, {"großes", 3}, {"aaaa", 2}}, 10));
  std::mt19937 random(4);
  for (int i = 0; i < 3000; ++i) {
    std::string text = good;
    for (size_t k = random() % 4; k < 4; ++k) {
      const size_t at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.erase(at, random() % 5);
          break;
        default:
          text.insert(at, 1 + random() % 3, " \n\xc3\0#"[random() % 5]);
      }
      if (text.empty()) text = " ";
    }
    const auto codes = ParseCodes("f", text);
    if (!codes.ok()) {
      EXPECT_TRUE(codes.status().message().starts_with("f:"));
      continue;
    }
    EXPECT_EQ(*ParseCodes("f", CodesText(*codes)), *codes);
    Segmenter segmenter(*codes);
    EXPECT_EQ(PiecesOf(segmenter, "großaa"), SplitSlowly(*codes, "großaa"));
  }
}

TEST(WordCounts, ForgetsTheRarestWhereThereIsNoRoom) {
  WordCounts counts(100'000);
  for (int i = 0; i < 20'000; ++i) {
    counts.Add("often" + std::to_string(i % 10));
    counts.Add("once" + std::to_string(i));
  }
  EXPECT_GT(counts.forgotten(), 15'000u);
  EXPECT_LT(counts.counts().size(), 1000u);
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(counts.counts().at("often" + std::to_string(i)), 2000u);
  }
}

}  // namespace
}  // namespace thimble::text
