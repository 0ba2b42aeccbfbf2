// SPDX-License-Identifier: Apache-2.0
#include "report/json_object.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>

namespace thimble::report {
namespace {

TEST(JsonObject, HasItsMembersInOrder) {
  EXPECT_EQ(JsonObject().Text(), "{}");
  JsonObject inner;
  inner.Add("least", std::numeric_limits<int64_t>::min());
  inner.Add("most", std::numeric_limits<uint64_t>::max());
  JsonObject json;
  json.Add("z", "text");
  json.Add("a", std::string("a\"b\n"));
  json.Add("yes", true);
  json.Add("no", false);
  json.AddNull("none");
  json.Add("inner", inner);
  json.AddRaw("list", "[1,2]");
  EXPECT_EQ(json.Text(),
            R"({"z":"text","a":"a\"b\u000a","yes":true,"no":false,)"
            R"("none":null,"inner":{"least":-9223372036854775808,)"
            R"("most":18446744073709551615},"list":[1,2]})");
}

TEST(JsonObject, NumbersComeBackAndAreNoIntegers) {
  JsonObject json;
  json.Add("one", 1.0);
  json.Add("none", 0.0);
  json.Add("tenth", 0.1);
  json.Add("third", 1.0 / 3);
  json.Add("small", 1e-5);
  json.Add("large", 1e20);
  EXPECT_EQ(json.Text(),
            R"({"one":1.0,"none":0.0,"tenth":0.1,"third":0.3333333333333333,)"
            R"("small":1e-05,"large":1e+20})");
}

TEST(ScriptString, IsAsciiWithoutTags) {
  EXPECT_EQ(ScriptString("a b"), "\"a b\"");
  EXPECT_EQ(ScriptString("</a>&\"\\"), R"("\u003c/a\u003e\u0026\"\\")");
  EXPECT_EQ(ScriptString("ü€😀\x7f"), R"("\u00fc\u20ac\ud83d\ude00\u007f")");
  EXPECT_EQ(ScriptString("\xff"), R"("\ufffd")");
}

}  // namespace
}  // namespace thimble::report
