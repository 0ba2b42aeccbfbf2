// SPDX-License-Identifier: Apache-2.0
#include "thimble/text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/utf8.h"

namespace thimble {
namespace {

TEST(Text, Utf8HasNoOverlongFormsSurrogatesOrStrayBytes) {
  for (const char* good : {"", "a", "…", "\x7f", "\u0080", "\u07ff", "\u0800",
                           "\ud7ff", "\ue000", "\U00010000", "\U0010ffff"}) {
    EXPECT_TRUE(IsUtf8(good)) << good;
  }
  for (const char* bad :
       {"\x80", "\xff", "a\xbf", "\xc0\x80", "\xc1\xbf", "\xc2", "\xc2g",
        "\xe0\x9f\xbf", "\xed\xa0\x80", "\xe2\x80", "\xf0\x8f\xbf\xbf",
        "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "ok\xe2\x80"}) {
    EXPECT_FALSE(IsUtf8(bad)) << bad;
  }
}

TEST(Text, PrintableTextKeepsLettersAndLosesWhatATerminalWouldObey) {
  EXPECT_EQ(Printable("wrn-28-2 'größer' …"), "wrn-28-2 'größer' …");
  EXPECT_EQ(Printable("a\x1b[31mred\x1b]0;title\x07z"), "a?[31mred?]0;title?z");
  EXPECT_EQ(Printable("two\nlines\r\ttab\x7f"), "two?lines??tab?");
  EXPECT_EQ(Printable("\u009b31m, but \u00a0"), "?31m, but \u00a0");
  EXPECT_EQ(Printable("\x9b"
                      "31m \xff\xe2\x80"),
            "?31m ???");
  EXPECT_EQ(Printable(std::string_view("a\0b", 3)), "a?b");
  EXPECT_EQ(Printable(""), "");
}

TEST(Text, JsonTextIsOneStringWhateverItHolds) {
  EXPECT_EQ(JsonText("wrn-28-2"), "\"wrn-28-2\"");
  EXPECT_EQ(JsonText("a\"b\\c"), "\"a\\\"b\\\\c\"");
  EXPECT_EQ(JsonText("\x1b\n\x7f"), "\"\\u001b\\u000a\\u007f\"");
  EXPECT_EQ(JsonText("ü\xff"), "\"ü\uFFFD\"");
}

TEST(Text, JsonHasNoNumberThatIsNotFinite) {
  EXPECT_EQ(JsonNumber(0.1f), "0.100000001");
  EXPECT_EQ(JsonNumber(-2), "-2");
  EXPECT_EQ(JsonNumber(std::nan("")), "null");
  EXPECT_EQ(JsonNumber(std::numeric_limits<double>::infinity()), "null");
  EXPECT_EQ(JsonNumber(-std::numeric_limits<double>::infinity()), "null");
}

TEST(Text, OneThingIsNotMany) {
  EXPECT_EQ(Counted(0, "image"), "0 images");
  EXPECT_EQ(Counted(1, "image"), "1 image");
  EXPECT_EQ(Counted(2, "test image"), "2 test images");
}

}  // namespace
}  // namespace thimble
