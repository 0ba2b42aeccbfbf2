// SPDX-License-Identifier: Apache-2.0
//
// For tests only: prepared text that is made of numbers. One thread.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "base/test_folder.h"
#include "text/token_file.h"

namespace thimble::text::testing {

using TestSentence = std::vector<uint16_t>;

struct TestPair {
  TestSentence source, target;  // with their ends
  uint32_t line = 0;
};

// Pairs of `lengths` (source, target; ends counted), whose words are numbers
// below `vocabulary` that tell lines apart.
inline std::vector<TestPair> MakeTestPairs(
    const std::vector<std::pair<int, int>>& lengths, int vocabulary = 40) {
  std::vector<TestPair> pairs;
  for (size_t line = 0; line < lengths.size(); ++line) {
    const auto sentence = [&](int length, size_t step) {
      TestSentence tokens;
      for (int i = 1; i < length; ++i) {
        tokens.push_back(static_cast<uint16_t>(
            static_cast<size_t>(kFirstWord) +
            (line * step + static_cast<size_t>(i) * 5) %
                static_cast<size_t>(vocabulary - kFirstWord)));
      }
      tokens.push_back(kEndToken);
      return tokens;
    };
    pairs.push_back({sentence(lengths[line].first, 3),
                     sentence(lengths[line].second, 7),
                     static_cast<uint32_t>(line)});
  }
  return pairs;
}

// As the training split must be.
inline std::vector<TestPair> InOrderOfLength(std::vector<TestPair> pairs) {
  std::ranges::stable_sort(pairs, {}, [](const TestPair& pair) {
    return std::pair(pair.source.size(), pair.target.size());
  });
  return pairs;
}

inline TokenHeader WriteTestTokens(const std::string& path,
                                   const std::vector<TestPair>& pairs,
                                   uint32_t vocabulary = 40) {
  auto writer = TokenFileWriter::Create(path, {vocabulary, vocabulary});
  EXPECT_TRUE(writer.ok()) << writer.status().message();
  for (const TestPair& pair : pairs) {
    EXPECT_TRUE(writer->Add(pair.line, pair.source, pair.target).ok());
  }
  auto header = writer->Commit();
  EXPECT_TRUE(header.ok()) << header.status().message();
  return *header;
}

// Codes and dictionaries of such a vocabulary, a multiple of 8.
inline void WriteTestMeaning(const TestFolder& folder,
                             uint32_t vocabulary = 40) {
  WriteTestFile(folder.File("codes"), "#version: 0.2\n");
  std::string words;
  for (uint32_t token = kFirstWord; token < vocabulary; ++token) {
    words += "w" + std::to_string(token) + " 1\n";
  }
  WriteTestFile(folder.File("source.dict"), words);
  WriteTestFile(folder.File("target.dict"), words);
}

}  // namespace thimble::text::testing
