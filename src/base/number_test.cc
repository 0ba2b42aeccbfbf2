// SPDX-License-Identifier: Apache-2.0
#include "thimble/number.h"

#include <gtest/gtest.h>

#include <limits>

namespace thimble {
namespace {

// What some parser of numbers or other takes, and none of ours may.
constexpr const char* kNoNumbers[] = {
    "",     " ",        "5 ",     " 5",   "+5",  "-5",   "-0",
    "0x10", "0X10",     "0b11",   "0o17", "1'0", "1_0",  "1,000",
    "5k",   "inf",      "nan",    "NaN",  "inf", "many", "1\n",
    "\t1",  "infinity", "0x1p-3", "٣",    "--5", "+-5",  "5-",
    "0x.8", "nan(ox)",  "1e",     "e5",   "."};

TEST(Number, WholeOnesAreDecimalWhateverTheyStartWith) {
  EXPECT_EQ(ParseWhole("0"), 0u);
  EXPECT_EQ(ParseWhole("0100"), 100u);
  EXPECT_EQ(ParseWhole("0000000000000000000000000000008"), 8u);
  EXPECT_EQ(ParseWhole("18446744073709551615"),
            std::numeric_limits<uint64_t>::max());
}

TEST(Number, WholeOnesAreDigitsAndNothingElse) {
  for (const char* text : kNoNumbers) {
    EXPECT_FALSE(ParseWhole(text).has_value()) << "'" << text << "'";
  }
  for (const char* text : {"18446744073709551616", "99999999999999999999999",
                           "1.0", "1e3", "5.", ".5"}) {
    EXPECT_FALSE(ParseWhole(text).has_value()) << text;
  }
  EXPECT_FALSE(ParseWhole(std::string_view("1\0", 2)).has_value());
}

TEST(Number, DecimalsAreTheNearestToWhatWasTyped) {
  EXPECT_EQ(ParseDecimal<double>("0"), 0.0);
  EXPECT_EQ(ParseDecimal<double>("0100"), 100.0);
  EXPECT_EQ(ParseDecimal<double>("0.1"), 0.1);
  EXPECT_EQ(ParseDecimal<double>(".5"), 0.5);
  EXPECT_EQ(ParseDecimal<double>("5."), 5.0);
  EXPECT_EQ(ParseDecimal<double>("5e-4"), 5e-4);
  EXPECT_EQ(ParseDecimal<double>("1E+2"), 100.0);
  EXPECT_EQ(ParseDecimal<float>("0.9"), 0.9f);
  // Just above half way from 1 to the next float, which a double would hide.
  EXPECT_EQ(ParseDecimal<float>("1.00000005960464477540"),
            std::nextafter(1.0f, 2.0f));
}

TEST(Number, DecimalsAreFiniteAndWrittenInDigits) {
  for (const char* text : kNoNumbers) {
    EXPECT_FALSE(ParseDecimal<double>(text).has_value()) << "'" << text << "'";
    EXPECT_FALSE(ParseDecimal<float>(text).has_value()) << "'" << text << "'";
  }
  EXPECT_FALSE(ParseDecimal<double>("1e400").has_value());
  EXPECT_FALSE(ParseDecimal<double>("1e-400").has_value());
  EXPECT_FALSE(ParseDecimal<float>("1e39").has_value());
  EXPECT_FALSE(ParseDecimal<float>("1e-50").has_value());
  EXPECT_FALSE(ParseDecimal<double>("1.5.5").has_value());
  EXPECT_FALSE(ParseDecimal<double>("1e5e5").has_value());
}

}  // namespace
}  // namespace thimble
