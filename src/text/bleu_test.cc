// SPDX-License-Identifier: Apache-2.0
//
// Figures are those of sacreBLEU 2.6.0, of files with these lines, by
//   sacrebleu REF -i HYP --tokenize none --smooth-method none --force -w 10
#include "text/bleu.h"

#include <gtest/gtest.h>

#include <string>

#include "base/test_folder.h"

namespace thimble::text {
namespace {

constexpr char kReferences[] =
    "a man in a blue shirt is standing on a ladder cleaning a window .\n"
    "two young girls are playing with a large red ball in the garden .\n"
    "the old dog sleeps under the table .\n"
    "a group of people stand in front of an old church .\n"
    "\n"
    "several children run along the beach and laugh .\n"
    "she reads a book .\n"
    "the the the the the cat sat on the mat\n";
constexpr char kHypotheses[] =
    "a man in a blue shirt stands on a ladder and cleans a window .\n"
    "two small girls play with a big red ball in the garden .\n"
    "the old dog sleeps under the table .\n"
    "some people stand in front of an old church .\n"
    "nothing\n"
    "\n"
    "she reads the book .\n"
    "the the the the the the the cat on the mat\n";

class BleuTest : public ::testing::Test {
 protected:
  Result<Bleu> Of(const std::string& hypotheses,
                  const std::string& references) {
    WriteTestFile(folder_.File("hyp"), hypotheses);
    WriteTestFile(folder_.File("ref"), references);
    return BleuOfFiles(folder_.File("hyp"), folder_.File("ref"));
  }
  TestFolder folder_;
};

std::string Replaced(std::string text, const std::string& from,
                     const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos;
       at += to.size()) {
    text.replace(at, from.size(), to);
  }
  return text;
}

TEST_F(BleuTest, IsThatOfSacreBleu) {
  const auto bleu = Of(kHypotheses, kReferences);
  ASSERT_TRUE(bleu.ok()) << bleu.status().message();
  EXPECT_NEAR(bleu->bleu, 52.7704196726, 1e-10);
  EXPECT_NEAR(bleu->precisions[0], 100.0 * 52 / 63, 1e-10);
  EXPECT_NEAR(bleu->precisions[1], 100.0 * 39 / 56, 1e-10);
  EXPECT_NEAR(bleu->precisions[2], 100.0 * 28 / 50, 1e-10);
  EXPECT_NEAR(bleu->precisions[3], 100.0 * 20 / 44, 1e-10);
  EXPECT_NEAR(bleu->brevity_penalty, 0.8532265636477702, 1e-15);
  EXPECT_EQ(bleu->sentences, 8);
  EXPECT_EQ(bleu->hypothesis_words, 63);
  EXPECT_EQ(bleu->reference_words, 73);
  EXPECT_EQ(bleu->Text(),
            "BLEU = 52.77, 82.5/69.6/56.0/45.5 (BP=0.853, ratio=0.863, "
            "hyp_len=63, ref_len=73)");
}

TEST_F(BleuTest, HasNoPenaltyWhereHypothesesAreLonger) {
  const std::string longer =
      Replaced(Replaced(kHypotheses, " .", " . and so on and on"), "nothing",
               "a b c d e f");
  const auto bleu = Of(longer, kReferences);
  ASSERT_TRUE(bleu.ok());
  EXPECT_NEAR(bleu->bleu, 39.7492325055, 1e-10);
  EXPECT_EQ(bleu->brevity_penalty, 1.0);
  EXPECT_EQ(bleu->hypothesis_words, 93);
}

TEST_F(BleuTest, IsZeroWhereNoFourWordsMatch) {
  const auto bleu = Of("the cat is on the mat\ngo we home now\n",
                       "the cat sat on the mat\nwe go home\n");
  ASSERT_TRUE(bleu.ok());
  EXPECT_EQ(bleu->bleu, 0.0);
  EXPECT_NEAR(bleu->precisions[1], 37.5, 1e-12);
  EXPECT_NEAR(bleu->precisions[2], 100.0 / 6, 1e-12);
  EXPECT_EQ(bleu->precisions[3], 0.0);
}

TEST_F(BleuTest, IsHundredOfTheSameText) {
  const auto bleu = Of(kReferences, kReferences);
  ASSERT_TRUE(bleu.ok());
  EXPECT_DOUBLE_EQ(bleu->bleu, 100.0);
  // Not of the last line's end, nor of blanks.
  const auto other = Of(Replaced(kReferences, " ", " \t  "),
                        std::string(kReferences, sizeof(kReferences) - 2));
  ASSERT_TRUE(other.ok());
  EXPECT_DOUBLE_EQ(other->bleu, 100.0);
  EXPECT_EQ(other->reference_words, 73);
}

TEST_F(BleuTest, OfNothingIsZero) {
  for (const char* text : {"", "\n\n"}) {
    const auto bleu = Of(text, text);
    ASSERT_TRUE(bleu.ok());
    EXPECT_EQ(bleu->bleu, 0.0);
    EXPECT_EQ(bleu->hypothesis_words, 0);
  }
  const auto silent = Of("\n", "a b c d e\n");
  ASSERT_TRUE(silent.ok());
  EXPECT_EQ(silent->bleu, 0.0);
  EXPECT_EQ(silent->brevity_penalty, 0.0);
}

TEST_F(BleuTest, NeedsAsManyLinesOfBoth) {
  for (const auto& [made, right] :
       {std::pair("a\nb\n", "a\n"), std::pair("a\n", "a\nb\n"),
        std::pair("", "\n")}) {
    const auto bleu = Of(made, right);
    ASSERT_FALSE(bleu.ok()) << made << "/" << right;
    EXPECT_EQ(bleu.status().code(), StatusCode::kFailed);
    EXPECT_NE(bleu.status().message().find("lines"), std::string::npos);
  }
  EXPECT_NE(Of("a\nb\n", "a\n")
                .status()
                .message()
                .find("ref has 1 lines, " + folder_.File("hyp") + " has more"),
            std::string::npos);
  EXPECT_FALSE(BleuOfFiles(folder_.File("none"), folder_.File("ref")).ok());
}

TEST_F(BleuTest, ReadsLinesOfAnyLength) {
  // Longer than what is read at once, and binary.
  std::string line;
  for (int i = 0; i < 40000; ++i) line += std::to_string(i % 977) + " \x01\xff";
  const auto bleu = Of(line + "\n" + line, line + "\n" + line + "\n");
  ASSERT_TRUE(bleu.ok());
  EXPECT_DOUBLE_EQ(bleu->bleu, 100.0);
  EXPECT_EQ(bleu->sentences, 2);
}

}  // namespace
}  // namespace thimble::text
