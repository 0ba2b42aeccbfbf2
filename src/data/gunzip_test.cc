// SPDX-License-Identifier: Apache-2.0
#include "data/gunzip.h"

#include <gtest/gtest.h>

#include <string>

#include "data/test_files.h"

namespace thimble {
namespace {

class GunzipFileTest : public testing::Test {
 protected:
  Status Unpack(std::string_view packed, uint64_t max = kMaxUnpackedBytes) {
    WriteTestFile(source_, packed);
    return GunzipFile(source_, target_, max);
  }

  // Expects an error that says `why` and names the source, and no file left.
  void ExpectRefused(std::string_view packed, const std::string& why,
                     uint64_t max = kMaxUnpackedBytes) {
    const Status status = Unpack(packed, max);
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
std::string Noise(size_t size) {
  const RandomStream random(1, 2, 3);
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; ++i) {
    bytes[i] = static_cast<char>(random.Bits(i / 4) >> (8 * (i % 4)));
  }
  return bytes;
}

TEST_F(GunzipFileTest, RestoresFilesOfAnySize) {
  for (size_t size : {0, 1, 1000, 65535, 65536, 65537, 300000}) {
    for (const std::string& bytes : {Noise(size), std::string(size, 'a')}) {
      const Status status = Unpack(Gzip(bytes));
      ASSERT_TRUE(status.ok()) << size << ": " << status.message();
      EXPECT_TRUE(ReadTestFile(target_) == bytes) << size;
    }
  }
}

TEST_F(GunzipFileTest, JoinsTheMembersOfAFile) {
  const Status status =
      Unpack(Gzip("one ") + Gzip(Noise(70000)) + Gzip(" two"));
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_TRUE(ReadTestFile(target_) == "one " + Noise(70000) + " two");
}

TEST_F(GunzipFileTest, RefusesWhatIsNotGzip) {
  ExpectRefused("plain text", "incorrect header check");
  ExpectRefused("", "cut short");
}

TEST_F(GunzipFileTest, RefusesEveryTruncation) {
  const std::string packed = Gzip(Noise(100));
  for (size_t size = 0; size < packed.size(); ++size) {
    ExpectRefused(packed.substr(0, size), "cut short");
  }
}

TEST_F(GunzipFileTest, RefusesAWrongChecksumOrLength) {
  std::string packed = Gzip("some text");
  packed[packed.size() - 8] ^= 1;
  ExpectRefused(packed, "incorrect data check");
  packed[packed.size() - 8] ^= 1;
  packed[packed.size() - 1] ^= 1;
  ExpectRefused(packed, "incorrect length check");
}

TEST_F(GunzipFileTest, RefusesGarbageAfterTheEnd) {
  ExpectRefused(Gzip("some text") + "garbage", "incorrect header check");
}

TEST_F(GunzipFileTest, StopsAtTheLimit) {
  const std::string zeros(200000, '\0');
  EXPECT_TRUE(Unpack(Gzip(zeros), zeros.size()).ok());
  ASSERT_EQ(std::remove(target_.c_str()), 0);
  ExpectRefused(Gzip(zeros), "more than 200.00 kB", zeros.size() - 1);
  ExpectRefused(Gzip(zeros) + Gzip("x"), "more than", zeros.size());
}

TEST_F(GunzipFileTest, NamesAMissingSource) {
  const Status status = GunzipFile(source_, target_);
  EXPECT_NE(status.message().find(source_), std::string::npos);
  EXPECT_EQ(folder_.CountFiles(), 0);
}

TEST_F(GunzipFileTest, NamesATargetThatCannotBeWritten) {
  WriteTestFile(source_, Gzip("x"));
  const std::string target = folder_.File("absent/f");
  EXPECT_NE(GunzipFile(source_, target).message().find(target),
            std::string::npos);
}

// A damaged file is refused, or its checksum still agrees and so must its
// bytes.
TEST_F(GunzipFileTest, SurvivesDamagedFiles) {
  const std::string bytes = Noise(150) + std::string(150, 'b');
  const std::string packed = Gzip(bytes);
  int refused = 0;
  for (uint64_t round = 0; round < 3000; ++round) {
    const size_t span = round % 2 == 0 ? 20 : packed.size();
    if (Unpack(Mutate(packed, round, span)).ok()) {
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
