// SPDX-License-Identifier: Apache-2.0
#include "base/half.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "base/rng.h"

namespace thimble {
namespace {

struct HalfType {
  const char* name;
  uint16_t (*of)(float);
  float (*value)(uint16_t);
  uint16_t infinity;
};

constexpr HalfType kHalfTypes[] = {{"f16", F16Of, F16Value, 0x7C00},
                                   {"bf16", BF16Of, BF16Value, 0x7F80}};

TEST(Half, AllBitPatternsComeBack) {
  for (const HalfType& type : kHalfTypes) {
    for (uint32_t i = 0; i < 65536; ++i) {
      const auto bits = static_cast<uint16_t>(i);
      const float value = type.value(bits);
      const bool is_nan = (bits & 0x7FFF) > type.infinity;
      ASSERT_EQ(std::isnan(value), is_nan) << type.name << " " << i;
      if (is_nan) {
        ASSERT_TRUE(std::isnan(type.value(type.of(value))));
      } else {
        ASSERT_EQ(type.of(value), bits) << type.name << " " << i;
      }
    }
  }
}

// Neighbours by the bits are neighbours by value, so the nearest is one of two.
TEST(Half, RoundsToTheNearestAndTiesToEven) {
  const RandomStream random(3, 1, 4);
  for (const HalfType& type : kHalfTypes) {
    for (uint64_t i = 0; i < 200000; ++i) {
      const uint32_t bits = random.Bits(i) & 0x7FFFFFFFu;
      const auto x = std::bit_cast<float>(bits);
      if (!std::isfinite(x)) continue;
      const uint16_t got = type.of(x);
      const auto off = [&](uint16_t h) {
        return std::abs(static_cast<double>(type.value(h)) - x);
      };
      if (got == type.infinity) {
        // Past the middle between the largest value and the next power of two.
        const double last = type.value(static_cast<uint16_t>(got - 1));
        const double before = type.value(static_cast<uint16_t>(got - 2));
        ASSERT_GE(x, last + (last - before) / 2) << type.name;
        continue;
      }
      if (got > 0) {
        ASSERT_LE(off(got), off(static_cast<uint16_t>(got - 1)));
      }
      if (got + 1 < type.infinity) {
        ASSERT_LE(off(got), off(static_cast<uint16_t>(got + 1)));
      }
    }
    for (uint16_t h = 0; h + 1 < type.infinity; ++h) {
      const float low = type.value(h);
      const float high = type.value(static_cast<uint16_t>(h + 1));
      const float middle = low + (high - low) / 2;
      const auto even = static_cast<uint16_t>(h % 2 == 0 ? h : h + 1);
      ASSERT_EQ(type.of(middle), even) << type.name << " " << h;
      ASSERT_EQ(type.of(-middle), even | 0x8000) << type.name << " " << h;
    }
  }
}

TEST(Half, OverflowsToInfinity) {
  EXPECT_EQ(F16Of(65519.0f), 0x7BFF);
  EXPECT_EQ(F16Of(65520.0f), 0x7C00);
  EXPECT_EQ(F16Of(-1e30f), 0xFC00);
  EXPECT_EQ(BF16Of(std::numeric_limits<float>::max()), 0x7F80);
  EXPECT_EQ(F16Of(std::numeric_limits<float>::infinity()), 0x7C00);
  EXPECT_EQ(BF16Of(-std::numeric_limits<float>::infinity()), 0xFF80);
}

}  // namespace
}  // namespace thimble
