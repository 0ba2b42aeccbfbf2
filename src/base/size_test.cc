// SPDX-License-Identifier: Apache-2.0
#include "thimble/size.h"

#include <gtest/gtest.h>

#include <limits>

namespace thimble {
namespace {

constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();

void ExpectSize(const char* text, uint64_t bytes) {
  const auto parsed = ParseSize(text);
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_EQ(*parsed, bytes) << text;
}

TEST(ParseSize, ReadsEveryUnit) {
  ExpectSize("123456", 123456);
  ExpectSize("17B", 17);
  ExpectSize("500kB", 500'000);
  ExpectSize("8MB", 8'000'000);
  ExpectSize("2GB", 2'000'000'000);
  ExpectSize("1TB", 1'000'000'000'000);
  ExpectSize("512KiB", 512 * 1024);
  ExpectSize("8MiB", 8 << 20);
  ExpectSize("3GiB", uint64_t{3} << 30);
  ExpectSize("1TiB", uint64_t{1} << 40);
}

TEST(ParseSize, ReadsFractionsExactly) {
  ExpectSize("6.7MB", 6'700'000);
  ExpectSize("0.1GB", 100'000'000);
  ExpectSize("2.5KiB", 2560);
  ExpectSize("1.0009kB", 1000);  // a fraction of a byte is dropped
  ExpectSize("0.3333333333333333333333333MB", 333'333);
}

TEST(ParseSize, ForgivesCaseAndSpaces) {
  ExpectSize("6.70 MB", 6'700'000);
  ExpectSize("6.7mb", 6'700'000);
  ExpectSize("8mib", 8 << 20);
  ExpectSize("8KB", 8000);
}

TEST(ParseSize, AcceptsZeroAndTheLargestSize) {
  ExpectSize("0", 0);
  ExpectSize("0MB", 0);
  ExpectSize("18446744073709551615", kMax);
}

TEST(ParseSize, RefusesEverythingElseAndNamesTheForms) {
  for (const char* text : {"",
                           " ",
                           "MB",
                           "-1",
                           "-1MB",
                           "+1",
                           ".5MB",
                           "5.",
                           "5.MB",
                           "6.7XB",
                           "6.7M",
                           "1.5",
                           "1.5B",
                           "1e6",
                           "1,000",
                           "0x10",
                           "6.7MB ",
                           " 6.7MB",
                           "6.7.1MB",
                           "18446744073709551616",
                           "99999999999999999999999MB",
                           "18446744.1TB",
                           "nan",
                           "inf",
                           "7 m b"}) {
    const auto parsed = ParseSize(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.status().code(), StatusCode::kUsage) << text;
    EXPECT_NE(parsed.status().message().find("8MiB"), std::string::npos);
  }
}

TEST(FormatBytes, RoundsToTwoDigits) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(999), "999 B");
  EXPECT_EQ(FormatBytes(1000), "1.00 kB");
  EXPECT_EQ(FormatBytes(6'700'000), "6.70 MB");
  EXPECT_EQ(FormatBytes(6'704'999), "6.70 MB");
  EXPECT_EQ(FormatBytes(6'705'000), "6.71 MB");
  EXPECT_EQ(FormatBytes(999'994), "999.99 kB");
  EXPECT_EQ(FormatBytes(999'995), "1.00 MB");
  EXPECT_EQ(FormatBytes(kMax), "18.45 EB");
}

TEST(FormatBytesUp, NeverPromisesLessWhenParsedAgain) {
  EXPECT_EQ(FormatBytesUp(6'700'000), "6.70 MB");
  EXPECT_EQ(FormatBytesUp(6'700'001), "6.71 MB");
  EXPECT_EQ(FormatBytesUp(999'991), "1.00 MB");
  for (uint64_t bytes = 1; bytes < 1'000'000'000'000; bytes = bytes * 3 + 1) {
    const auto parsed = ParseSize(FormatBytesUp(bytes));
    ASSERT_TRUE(parsed.ok());
    EXPECT_GE(*parsed, bytes);
  }
}

}  // namespace
}  // namespace thimble
