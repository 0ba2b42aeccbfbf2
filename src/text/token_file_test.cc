// SPDX-License-Identifier: Apache-2.0
#include "text/token_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/test_folder.h"
#include "text/test_text.h"

namespace thimble::text::testing {
namespace {

std::vector<std::byte> BodyOf(const std::vector<TestPair>& pairs) {
  std::vector<std::byte> body;
  const auto put = [&body](const void* from, size_t bytes) {
    const auto* data = static_cast<const std::byte*>(from);
    body.insert(body.end(), data, data + bytes);
  };
  for (const TestPair& pair : pairs) {
    for (const TestSentence* side : {&pair.source, &pair.target}) {
      const auto length = static_cast<uint16_t>(side->size());
      put(&length, 2);
    }
    put(&pair.line, 4);
    for (const TestSentence* side : {&pair.source, &pair.target}) {
      put(side->data(), 2 * side->size());
    }
  }
  return body;
}

// With lengths from 1, in the order of the text, so many that the writer
// flushes and the reader reads more than once.
std::vector<TestPair> ManyPairs(size_t count) {
  std::vector<std::pair<int, int>> lengths;
  std::mt19937 random(1);
  for (size_t i = 0; i < count; ++i) {
    lengths.emplace_back(1 + random() % 60, 1 + random() % 60);
  }
  return MakeTestPairs(lengths);
}

class TokenFileTest : public ::testing::Test {
 protected:
  std::string Path() const { return folder_.File("train.tokens"); }

  // What Open, and then Check, say of the file; empty where they like it.
  std::string Complaint(bool sorted = false) const {
    const auto file = TokenFile::Open(Path());
    if (!file.ok()) return file.status().message();
    return file->Check(sorted).message();
  }

  TestFolder folder_;
};

TEST_F(TokenFileTest, GivesBackWhatWasWritten) {
  const std::vector<TestPair> pairs = ManyPairs(7000);
  const TokenHeader written = WriteTestTokens(Path(), pairs);
  const auto file = TokenFile::Open(Path());
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->header(), written);
  EXPECT_TRUE(file->Check(/*sorted=*/false).ok());
  TokenHeader expected{.pairs = pairs.size(), .vocabulary = {40, 40}};
  for (const TestPair& pair : pairs) {
    expected.tokens[0] += pair.source.size();
    expected.tokens[1] += pair.target.size();
    expected.longest[0] = std::max<uint32_t>(
        expected.longest[0], static_cast<uint32_t>(pair.source.size()));
    expected.longest[1] = std::max<uint32_t>(
        expected.longest[1], static_cast<uint32_t>(pair.target.size()));
  }
  const std::vector<std::byte> body = BodyOf(pairs);
  Sha256 sha;
  sha.Update(body);
  expected.sha256 = sha.Final();
  EXPECT_EQ(written, expected);
  ASSERT_EQ(written.body_bytes(), body.size());
  std::vector<std::byte> read(body.size() - 1001);
  ASSERT_TRUE(file->Read(1001, read).ok());
  EXPECT_TRUE(std::equal(read.begin(), read.end(), body.begin() + 1001));
}

TEST_F(TokenFileTest, IsNotThereUntilItIsWhole) {
  {
    auto writer = TokenFileWriter::Create(Path(), {40, 40});
    ASSERT_TRUE(writer.ok());
    const TestSentence end = {kEndToken};
    ASSERT_TRUE(writer->Add(0, end, end).ok());
    EXPECT_FALSE(IsFile(Path()));
  }
  EXPECT_EQ(folder_.CountFiles(), 0);
}

TEST_F(TokenFileTest, HoldsNoPairsOrTheLongest) {
  WriteTestTokens(Path(), {});
  EXPECT_EQ(Complaint(/*sorted=*/true), "");
  WriteTestTokens(Path(), MakeTestPairs({{1, 1}, {65535, 65535}}), 65536);
  EXPECT_EQ(Complaint(/*sorted=*/true), "");
}

TEST_F(TokenFileTest, IsInTheOrderOfLengths) {
  const auto order = MakeTestPairs({{3, 9}, {4, 2}, {4, 2}, {4, 3}});
  WriteTestTokens(Path(), order);
  EXPECT_EQ(Complaint(/*sorted=*/true), "");
  for (const auto& lengths :
       {std::vector<std::pair<int, int>>{{3, 2}, {2, 9}},
        std::vector<std::pair<int, int>>{{3, 2}, {3, 1}}}) {
    WriteTestTokens(Path(), MakeTestPairs(lengths));
    EXPECT_EQ(Complaint(/*sorted=*/false), "");
    EXPECT_NE(Complaint(/*sorted=*/true).find("record 2 is not in the order"),
              std::string::npos);
  }
}

TEST_F(TokenFileTest, SaysWhatIsWrong) {
  const std::vector<TestPair> pairs = MakeTestPairs({{3, 4}, {5, 2}});
  WriteTestTokens(Path(), pairs);
  const std::string good = ReadTestFile(Path());
  const auto complaint = [&](const std::function<void(std::string&)>& change) {
    std::string bytes = good;
    change(bytes);
    WriteTestFile(Path(), bytes);
    return Complaint();
  };
  const auto has = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  EXPECT_EQ(complaint([](std::string&) {}), "");
  has(complaint([](std::string& b) { b.resize(127); }),
      "has 127 bytes, fewer than a token file's header of 128");
  has(complaint([](std::string& b) { b[0] = 'X'; }), "is no token file");
  has(complaint([](std::string& b) { b[4] = 2; }),
      "of version 2, and this program reads version 1");
  has(complaint([](std::string& b) { b.pop_back(); }),
      "it has 171 bytes, and its header says 172");
  has(complaint([](std::string& b) { b += "ab"; }),
      "it has 174 bytes, and its header says 172");
  for (const size_t field : {15u, 23u, 31u, 35u, 43u, 47u, 80u, 127u}) {
    has(complaint([&](std::string& b) { b[field] = '\x7f'; }),
        "its header makes no sense");
  }
  has(complaint([](std::string& b) { b[128 + 8 + 1] = 1; }),
      "record 1 holds no sentences");
  has(complaint([](std::string& b) { b[128 + 8] = kEndToken; }),
      "record 1 holds no sentences");
  has(complaint([](std::string& b) { b[128] = 2; }),
      "record 1 holds no sentences");
  has(complaint([](std::string& b) { b[150] = 0, b[152] = 0; }),
      "record 2 holds no sentences");
  has(complaint([](std::string& b) { b[151] = '\x7f'; }), "is cut off");
  // A word, a line, a digest.
  for (const size_t byte : {136u, 132u, 48u, 79u}) {
    has(complaint([&](std::string& b) { b[byte] ^= 1; }),
        "its records are not those of its header");
  }
}

TEST_F(TokenFileTest, NoChangeOfBytesIsOverlookedOrKills) {
  WriteTestTokens(Path(), InOrderOfLength(ManyPairs(20)));
  const std::string good = ReadTestFile(Path());
  std::mt19937 random(2);
  for (int i = 0; i < 3000; ++i) {
    std::string bytes = good;
    const size_t at = random() % bytes.size();
    switch (random() % 3) {
      case 0:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
        break;
      case 1:
        bytes.resize(at);
        break;
      default:
        bytes.insert(at, 1 + random() % 9, static_cast<char>(random()));
    }
    if (bytes == good) continue;
    WriteTestFile(Path(), bytes);
    EXPECT_NE(Complaint(/*sorted=*/true), "") << "byte " << at;
  }
}

TEST_F(TokenFileTest, ADataFolderHasItsSplits) {
  const auto train = InOrderOfLength(MakeTestPairs({{3, 4}, {5, 2}, {3, 2}}));
  WriteTestTokens(folder_.File("train.tokens"), train);
  WriteTestMeaning(folder_);
  const auto alone = TextData::Open(folder_.path());
  ASSERT_TRUE(alone.ok()) << alone.status().message();
  WriteTestTokens(folder_.File("test.tokens"), MakeTestPairs({{9, 1}, {2, 2}}));
  const auto data = TextData::Open(folder_.path());
  ASSERT_TRUE(data.ok()) << data.status().message();
  EXPECT_EQ((*data)->name(), folder_.path());
  EXPECT_TRUE((*data)->has(TextSplit::kTrain));
  EXPECT_FALSE((*data)->has(TextSplit::kValid));
  EXPECT_EQ((*data)->vocabulary(TextSide::kTarget), 40);
  EXPECT_EQ((*data)->pairs(TextSplit::kTrain), 3);
  EXPECT_EQ((*data)->pairs(TextSplit::kValid), 0);
  EXPECT_EQ((*data)->pairs(TextSplit::kTest), 2);
  EXPECT_EQ((*data)->tokens(TextSplit::kTrain, TextSide::kSource), 11);
  EXPECT_EQ((*data)->longest(TextSplit::kTest, TextSide::kSource), 9);
  EXPECT_EQ((*data)->longest(TextSplit::kTest, TextSide::kTarget), 2);
  const std::vector<std::byte> body = BodyOf(train);
  ASSERT_EQ((*data)->bytes(TextSplit::kTrain), body.size());
  std::vector<std::byte> read(body.size() - 5);
  ASSERT_TRUE((*data)->Read(TextSplit::kTrain, 5, read).ok());
  EXPECT_TRUE(std::equal(read.begin(), read.end(), body.begin() + 5));
  EXPECT_EQ((*data)->fingerprint().size(), 16u);
  EXPECT_NE((*data)->fingerprint(), (*alone)->fingerprint());
}

TEST_F(TokenFileTest, AFolderThatCannotBeTheDataIsRefused) {
  const auto complaint = [](const std::string& path) {
    const auto data = TextData::Open(path);
    return data.ok() ? "" : data.status().message();
  };
  EXPECT_NE(complaint(folder_.File("none")).find("none is no folder"),
            std::string::npos);
  EXPECT_NE(complaint(folder_.path()).find("has no file train.tokens"),
            std::string::npos);
  WriteTestTokens(Path(), MakeTestPairs({{3, 4}}));
  WriteTestTokens(folder_.File("valid.tokens"), MakeTestPairs({{3, 4}}), 48);
  EXPECT_NE(complaint(folder_.path()).find("their vocabularies differ"),
            std::string::npos);
  WriteTestTokens(Path(), MakeTestPairs({{3, 4}, {2, 4}}));
  EXPECT_NE(complaint(folder_.path()).find("not in the order of lengths"),
            std::string::npos);
  std::remove(folder_.File("valid.tokens").c_str());
  WriteTestTokens(Path(), MakeTestPairs({{3, 4}}));
  EXPECT_NE(complaint(folder_.path()).find("cannot open"), std::string::npos);
  WriteTestMeaning(folder_, 48);
  EXPECT_NE(complaint(folder_.path())
                .find("source.dict has 48 tokens, and train.tokens beside it "
                      "was made with 40"),
            std::string::npos);
  WriteTestMeaning(folder_);
  EXPECT_EQ(complaint(folder_.path()), "");
}

}  // namespace
}  // namespace thimble::text::testing
