// SPDX-License-Identifier: Apache-2.0
#include "data/tar.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "data/test_files.h"

namespace thimble {
namespace {

// Keeps what it is told, and checks that it is told in order.
class Recorder : public TarVisitor {
 public:
  Status Begin(std::string_view name, uint64_t bytes) override {
    EXPECT_FALSE(open_);
    open_ = true;
    promised_ = bytes;
    files_.emplace_back(name, "");
    return name == refused_ ? Status::Failed("refused") : Status::Ok();
  }
  Status Data(std::span<const std::byte> piece) override {
    EXPECT_TRUE(open_);
    EXPECT_FALSE(piece.empty());
    files_.back().second.append(reinterpret_cast<const char*>(piece.data()),
                                piece.size());
    EXPECT_LE(files_.back().second.size(), promised_);
    return Status::Ok();
  }
  Status End() override {
    EXPECT_TRUE(open_);
    EXPECT_EQ(files_.back().second.size(), promised_);
    open_ = false;
    return Status::Ok();
  }

  std::vector<std::pair<std::string, std::string>> files_;
  std::string refused_;
  bool open_ = false;
  uint64_t promised_ = 0;
};

Status Parse(std::string_view archive, size_t piece, Recorder* recorder) {
  TarParser parser("some.tar", recorder);
  for (size_t at = 0; at < archive.size(); at += piece) {
    const std::string_view part = archive.substr(at, piece);
    const Status status =
        parser.Feed(std::as_bytes(std::span(part.data(), part.size())));
    if (!status.ok()) return status;
  }
  return parser.Finish();
}

std::string Bytes(size_t count) {
  std::string bytes;
  for (size_t i = 0; i < count; ++i) bytes += static_cast<char>(i * i % 255);
  return bytes;
}

TEST(Tar, GivesRegularFilesHoweverTheStreamIsCut) {
  std::string archive = TarMember("folder/", "", '5');
  for (const size_t size : {0, 1, 511, 512, 513, 3073}) {
    archive += TarMember("folder/" + std::to_string(size), Bytes(size));
  }
  archive += TarMember("old", "no type", '\0') + TarEnd() + "rubbish";
  for (const size_t piece : {1, 7, 511, 512, 513, 100000}) {
    Recorder recorder;
    const Status status = Parse(archive, piece, &recorder);
    ASSERT_TRUE(status.ok()) << status.message();
    ASSERT_EQ(recorder.files_.size(), 7u);
    for (size_t i = 0; i < 6; ++i) {
      const auto& [name, bytes] = recorder.files_[i];
      EXPECT_EQ(name, "folder/" + std::to_string(bytes.size()));
      EXPECT_TRUE(bytes == Bytes(bytes.size()));
    }
    EXPECT_EQ(recorder.files_[6].second, "no type");
    EXPECT_FALSE(recorder.open_);
  }
}

TEST(Tar, PassesOverLinksAndExtensions) {
  // A link has no bytes, even where its header says so.
  const std::string link = WithTarChecksum(
      TarMember("link", "", '2').replace(124, 11, "00000002000"));
  const std::string archive = TarMember("pax", "30 path=elsewhere\n", 'x') +
                              link + TarMember("device", "", '3') +
                              TarMember("file", "bytes") + TarEnd();
  Recorder recorder;
  ASSERT_TRUE(Parse(archive, 100, &recorder).ok());
  ASSERT_EQ(recorder.files_.size(), 1u);
  EXPECT_EQ(recorder.files_[0].first, "file");
}

TEST(Tar, TakesAnArchiveWithoutItsEnd) {
  Recorder recorder;
  EXPECT_TRUE(Parse(TarMember("file", Bytes(600)), 64, &recorder).ok());
  const std::string unpadded = TarMember("f", Bytes(600)).substr(0, 512 + 600);
  EXPECT_TRUE(Parse(unpadded, 64, &recorder).ok());
}

TEST(Tar, TakesANameThatFillsItsField) {
  const std::string name(100, 'n');
  Recorder recorder;
  ASSERT_TRUE(Parse(TarMember(name, "x"), 512, &recorder).ok());
  EXPECT_EQ(recorder.files_[0].first, name);
}

TEST(Tar, RefusesEveryTruncationWithinAMember) {
  const std::string archive = TarMember("file", Bytes(600));
  for (size_t size = 1; size < 512 + 600; ++size) {
    Recorder recorder;
    const Status status = Parse(archive.substr(0, size), 4096, &recorder);
    ASSERT_NE(status.message().find("some.tar"), std::string::npos) << size;
    EXPECT_NE(status.message().find("ends within a file"), std::string::npos);
  }
}

TEST(Tar, RefusesAChangedHeader) {
  const std::string good = TarMember("file", Bytes(600)) + TarEnd();
  for (size_t at = 0; at < 512; ++at) {
    std::string bad = good;
    bad[at] ^= 1;
    Recorder recorder;
    const Status status = Parse(bad, 4096, &recorder);
    // The checksum's last two bytes are not digits.
    if (at == 154 || at == 155) continue;
    EXPECT_FALSE(status.ok()) << at;
  }
}

TEST(Tar, RefusesASizeThatIsNoNumber) {
  for (const std::string& size :
       {std::string(12, ' '), std::string(12, '\0'),
        std::string("0000000008\0 ", 12),
        std::string("\x80\0\0\0\0\0\0\0\0\0\2\0", 12)}) {
    const std::string header =
        WithTarChecksum(TarMember("file", "").replace(124, 12, size));
    Recorder recorder;
    EXPECT_NE(Parse(header, 512, &recorder).message().find("size is no number"),
              std::string::npos);
  }
}

TEST(Tar, EndsWithTheVisitorsError) {
  Recorder recorder;
  recorder.refused_ = "b";
  EXPECT_EQ(
      Parse(TarMember("a", "1") + TarMember("b", "2") + TarMember("c", "3"), 64,
            &recorder)
          .message(),
      "refused");
  EXPECT_EQ(recorder.files_.size(), 2u);
}

// Damaged archives are refused or give whole files, in order; the recorder
// checks that. Half of the headers get a checksum that agrees again.
TEST(Tar, SurvivesDamagedArchives) {
  const std::string good = TarMember("a", Bytes(700)) +
                           TarMember("long", "name", 'L') +
                           TarMember("b", Bytes(30)) + TarEnd();
  int refused = 0;
  for (uint64_t round = 0; round < 20000; ++round) {
    std::string bad = Mutate(good, round, round % 2 == 0 ? 512 : good.size());
    if (round % 4 < 2 && bad.size() > 512) {
      bad = WithTarChecksum(bad);
    }
    Recorder recorder;
    const Status status = Parse(bad, 1 + round % 700, &recorder);
    if (status.ok()) {
      ASSERT_FALSE(recorder.open_) << round;
    } else {
      ++refused;
    }
  }
  EXPECT_GT(refused, 5000);
}

}  // namespace
}  // namespace thimble
