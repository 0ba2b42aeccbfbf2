// SPDX-License-Identifier: Apache-2.0
#include "data/gunzip.h"

#include <gtest/gtest.h>

#include <string>

#include "data/test_files.h"

namespace thimble {
namespace {

class GunzipFileTest : public testing::Test {
 protected:
  // The length that a header promises: any number, here.
  static UnpackedHeader Promise(size_t bytes) {
    return {.bytes = 0,
            .length = [bytes](std::span<const std::byte>) -> Result<uint64_t> {
              return bytes;
            }};
  }

  Status Unpack(std::string_view packed, size_t bytes) {
    WriteTestFile(source_, packed);
    return GunzipFile(source_, target_, Promise(bytes));
  }

  // Expects an error that says `why` and names the source, and no file left.
  void ExpectRefused(std::string_view packed, size_t bytes,
                     const std::string& why) {
    const Status status = Unpack(packed, bytes);
    EXPECT_EQ(status.code(), StatusCode::kFailed) << why;
    EXPECT_NE(status.message().find(why), std::string::npos)
        << status.message();
    EXPECT_NE(status.message().find(source_), std::string::npos);
    EXPECT_EQ(folder_.CountFiles(), 1);
  }

  TestFolder folder_;
  std::string source_ = folder_.File("f.gz");
  std::string target_ = folder_.File("f");
};

// Bytes that deflate cannot shrink.
std::string NoiseText(size_t size) {
  const RandomStream random(1, 2, 3);
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; ++i) {
    bytes[i] = static_cast<char>(random.Bits(i / 4) >> (8 * (i % 4)));
  }
  return bytes;
}

TEST_F(GunzipFileTest, RestoresFilesOfAnySize) {
  for (size_t size : {0, 1, 1000, 65535, 65536, 65537, 300000}) {
    for (const std::string& bytes : {NoiseText(size), std::string(size, 'a')}) {
      const Status status = Unpack(Gzip(bytes), size);
      ASSERT_TRUE(status.ok()) << size << ": " << status.message();
      EXPECT_TRUE(ReadTestFile(target_) == bytes) << size;
    }
  }
}

TEST_F(GunzipFileTest, JoinsTheMembersOfAFile) {
  const Status status =
      Unpack(Gzip("one ") + Gzip(NoiseText(70000)) + Gzip(" two"), 70008);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_TRUE(ReadTestFile(target_) == "one " + NoiseText(70000) + " two");
}

TEST_F(GunzipFileTest, RefusesWhatIsNotGzip) {
  ExpectRefused("plain text", 10, "incorrect header check");
  ExpectRefused("", 0, "cut short");
}

TEST_F(GunzipFileTest, RefusesEveryTruncation) {
  const std::string packed = Gzip(NoiseText(100));
  for (size_t size = 0; size < packed.size(); ++size) {
    ExpectRefused(packed.substr(0, size), 100, "cut short");
  }
}

TEST_F(GunzipFileTest, RefusesAWrongChecksumOrLength) {
  std::string packed = Gzip("some text");
  packed[packed.size() - 8] ^= 1;
  ExpectRefused(packed, 9, "incorrect data check");
  packed[packed.size() - 8] ^= 1;
  packed[packed.size() - 1] ^= 1;
  ExpectRefused(packed, 9, "incorrect length check");
}

TEST_F(GunzipFileTest, RefusesGarbageAfterTheEnd) {
  ExpectRefused(Gzip("some text") + "garbage", 9, "incorrect header check");
}

TEST_F(GunzipFileTest, StopsAtThePromisedLength) {
  const std::string zeros(200000, '\0');
  EXPECT_TRUE(Unpack(Gzip(zeros), zeros.size()).ok());
  ASSERT_EQ(std::remove(target_.c_str()), 0);
  ExpectRefused(Gzip(zeros), 199999, "promises 199999 bytes");
  ExpectRefused(Gzip(zeros) + Gzip("x"), 200000, "too long");
  ExpectRefused(Gzip(zeros), 200001, "unpacks to 200000: it is cut short");
  ExpectRefused(Gzip(zeros), size_t{5} << 30,
                "must not take more than 4.29 GB");
}

// Members end wherever they like, also within the header.
TEST_F(GunzipFileTest, TakesAHeaderThatComesInPieces) {
  WriteTestFile(source_, Gzip("3") + Gzip("0") + Gzip("") + Gzip("0rest"));
  std::string seen;
  const UnpackedHeader header = {
      .bytes = 3,
      .length = [&](std::span<const std::byte> bytes) -> Result<uint64_t> {
        for (const std::byte b : bytes) seen += static_cast<char>(b);
        return uint64_t{7};
      }};
  const Status status = GunzipFile(source_, target_, header);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(seen, "300");
  EXPECT_EQ(ReadTestFile(target_), "300rest");
}

TEST_F(GunzipFileTest, GivesAHeaderThatIsCutShortToItsJudge) {
  WriteTestFile(source_, Gzip("30"));
  const UnpackedHeader header = {
      .bytes = 3,
      .length = [](std::span<const std::byte> bytes) -> Result<uint64_t> {
        return Status::Failed("only " + std::to_string(bytes.size()));
      }};
  EXPECT_EQ(GunzipFile(source_, target_, header).message(), "only 2");
  EXPECT_EQ(folder_.CountFiles(), 1);
}

TEST(Gunzip, StopsAtTheLimit) {
  const TestFolder folder;
  const std::string source = folder.File("f.gz");
  WriteTestFile(source, Gzip(std::string(200000, '\0')));
  size_t given = 0;
  const auto sink = [&](std::span<const std::byte> piece) {
    given += piece.size();
    return Status::Ok();
  };
  EXPECT_TRUE(Gunzip(source, sink, {}, 200000).ok());
  EXPECT_EQ(given, 200000u);
  const Status status = Gunzip(source, sink, {}, 199999);
  EXPECT_NE(status.message().find("more than 200.00 kB"), std::string::npos)
      << status.message();
}

TEST_F(GunzipFileTest, NamesAMissingSource) {
  const Status status = GunzipFile(source_, target_, Promise(1));
  EXPECT_NE(status.message().find(source_), std::string::npos);
  EXPECT_EQ(folder_.CountFiles(), 0);
}

TEST_F(GunzipFileTest, NamesATargetThatCannotBeWritten) {
  WriteTestFile(source_, Gzip("x"));
  const std::string target = folder_.File("absent/f");
  EXPECT_NE(GunzipFile(source_, target, Promise(1)).message().find(target),
            std::string::npos);
}

// A damaged file is refused, or its checksum still agrees and so must its
// bytes.
TEST_F(GunzipFileTest, SurvivesDamagedFiles) {
  const std::string bytes = NoiseText(150) + std::string(150, 'b');
  const std::string packed = Gzip(bytes);
  int refused = 0;
  for (uint64_t round = 0; round < 3000; ++round) {
    const size_t span = round % 2 == 0 ? 20 : packed.size();
    if (Unpack(Mutate(packed, round, span), bytes.size()).ok()) {
      ASSERT_TRUE(ReadTestFile(target_) == bytes) << round;
      ASSERT_EQ(std::remove(target_.c_str()), 0);
    } else {
      ++refused;
    }
    ASSERT_EQ(folder_.CountFiles(), 1) << round;
  }
  EXPECT_GT(refused, 1500);
}

}  // namespace
}  // namespace thimble
