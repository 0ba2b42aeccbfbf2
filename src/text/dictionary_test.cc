// SPDX-License-Identifier: Apache-2.0
#include "text/dictionary.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "base/test_folder.h"

namespace thimble::text {
namespace {

class DictionaryTest : public ::testing::Test {
 protected:
  Result<Dictionary> Read(const std::string& bytes) const {
    WriteTestFile(folder_.File("d"), bytes);
    return Dictionary::Read(folder_.File("d"));
  }
  std::string Complaint(const std::string& bytes) const {
    const auto dictionary = Read(bytes);
    if (dictionary.ok()) return "";
    const std::string& message = dictionary.status().message();
    return message.substr(message.rfind("/d:") + 1);
  }

  TestFolder folder_;
};

TEST_F(DictionaryTest, GivesWordsTheirNumbers) {
  std::vector<CountedWord> words = {
      {"b@@", 7}, {"ä", 9}, {"c", 7}, {"</s>", 1}, {"a", 7}};
  SortWords(&words);
  EXPECT_EQ(DictionaryText(words), "ä 9\na 7\nb@@ 7\nc 7\n</s> 1\n");
  const auto dictionary = Read(DictionaryText(words));
  ASSERT_TRUE(dictionary.ok()) << dictionary.status().message();
  EXPECT_EQ(dictionary->words(), 5);
  EXPECT_EQ(dictionary->size(), 16);
  EXPECT_EQ(dictionary->Find("ä"), 4);
  EXPECT_EQ(dictionary->Find("c"), 7);
  EXPECT_EQ(dictionary->Text(6), "b@@");
  // A word of the text, whatever it looks like.
  EXPECT_EQ(dictionary->Find("</s>"), 8);
  EXPECT_EQ(dictionary->Text(kEndToken), "</s>");
  EXPECT_EQ(dictionary->Text(15), "<none>");
  for (const char* unknown : {"b", "", "zz", "<unk>"}) {
    EXPECT_EQ(dictionary->Find(unknown), kUnknownToken) << unknown;
  }
}

TEST_F(DictionaryTest, PutsPiecesTogether) {
  const auto dictionary = Read("lo@@ 3\nw@@ 2\ns 2\nx 1\n");
  ASSERT_TRUE(dictionary.ok());
  const auto join = [&](std::vector<int32_t> tokens) {
    return dictionary->Join(tokens);
  };
  EXPECT_EQ(join({4, 5, 6, 7, kEndToken}), "lows x");
  EXPECT_EQ(join({kPadToken, 7, kUnknownToken, 7}), "x <unk> x");
  EXPECT_EQ(join({7, 4, kEndToken}), "x lo");
  EXPECT_EQ(join({}), "");
  EXPECT_EQ(join({kEndToken}), "");
}

TEST_F(DictionaryTest, EightWordsAreNotPadded) {
  EXPECT_EQ(Read("")->size(), 8);
  EXPECT_EQ(Read("a 1\nb 1\nc 1\nd 1\n")->size(), 8);
  EXPECT_EQ(Read("a 1\nb 1\nc 1\nd 1\ne 1")->size(), 16);
}

TEST_F(DictionaryTest, SaysWhatIsWrong) {
  for (const char* line : {"a", "a ", " 1", "a b 1", "a 1.5", "a -1", "a\t1 1",
                           "\xff 1", "", "a x", "a 99999999999999999999"}) {
    EXPECT_EQ(Complaint("ok 1\n" + std::string(line) + "\n"),
              "d:2: the line of a dictionary is a word, a space and how often "
              "it occurs")
        << line;
  }
  EXPECT_EQ(Complaint("a 1\nb 1\na 2\n"),
            "d:3: the word of line 1 again; each word has one line");
  std::string many;
  for (int64_t i = 0; i < kMostWords; ++i) many += std::to_string(i) + " 1\n";
  EXPECT_EQ(Complaint(many), "");
  EXPECT_EQ(Read(many)->size(), 65536);
  EXPECT_EQ(Complaint(many + "x 1\n"),
            "d:65533: a dictionary has at most 65532 words");
}

TEST_F(DictionaryTest, AnyBytesAreReadOrRefused) {
  const std::string good = "ä 9\na 7\nb@@ 7\nc 7\n</s> 1\n";
  std::mt19937 random(4);
  for (int i = 0; i < 2000; ++i) {
    std::string text = good;
    for (size_t k = random() % 4; k < 4; ++k) {
      const size_t at = random() % text.size();
      if (random() % 2 == 0) {
        text[at] = static_cast<char>(random());
      } else {
        text.insert(at, 1 + random() % 3,
                    " \n\xc3\0"
                    "1"[random() % 5]);
      }
    }
    const auto dictionary = Read(text);
    if (!dictionary.ok()) {
      EXPECT_NE(dictionary.status().message().find("/d:"), std::string::npos);
      continue;
    }
    for (int32_t token = kFirstWord; token < kFirstWord + dictionary->words();
         ++token) {
      EXPECT_EQ(dictionary->Find(dictionary->Text(token)), token);
    }
  }
}

TEST(SortWords, KeepsTheMostFrequentThatFit) {
  std::vector<CountedWord> words;
  for (uint64_t i = 0; i < 70'000; ++i)
    words.emplace_back(std::to_string(i), i);
  SortWords(&words);
  EXPECT_EQ(std::ssize(words), kMostWords);
  EXPECT_EQ(words.front().first, "69999");
  EXPECT_EQ(VocabularyOf(std::ssize(words)), 65536);
}

}  // namespace
}  // namespace thimble::text
