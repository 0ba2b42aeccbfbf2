// SPDX-License-Identifier: Apache-2.0
//
// The primitives of every build that this CPU runs, against scalar models; and
// which form and build are chosen.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/dot/dot_form.h"
#include "kernels/dot/reference.h"
#include "kernels/dot/test_form.h"
#include "kernels/guard_page.h"

#if defined(__x86_64__)
#define THIMBLE_DOT_INCLUDE "kernels/dot/lanes_probe-inl.h"
#include "kernels/dot/foreach_build.h"

namespace thimble::kernels {
namespace {

uint32_t BitsOf(float v) {
  uint32_t bits;
  std::memcpy(&bits, &v, sizeof bits);
  return bits;
}
float FloatOf(uint32_t bits) {
  float v;
  std::memcpy(&v, &bits, sizeof v);
  return v;
}

// Values of every kind: usual ones, tiny, huge, denormal, zeros.
float AnyFloat(std::mt19937& random) {
  const auto mantissa = static_cast<uint32_t>(random() & 0x7FFFFF);
  const auto sign = static_cast<uint32_t>(random() & 1) << 31;
  const auto any = static_cast<uint32_t>(random());
  uint32_t exponent = 0;
  switch (random() % 4) {
    case 0:
      exponent = any % 254;
      break;
    case 1:
      exponent = any % 4;
      break;
    default:
      exponent = 110 + any % 30;
  }
  return FloatOf(sign | exponent << 23 | mantissa);
}
uint32_t AnyPair(std::mt19937& random) {
  return BitsOf(AnyFloat(random)) >> 16 |
         (BitsOf(AnyFloat(random)) & 0xFFFF0000u);
}

TEST(DotLanes, AddTheUpperProductFirstAndFlushDenormals) {
  std::mt19937 random(1);
  testing::ForEachDotForm([&] {
    const auto dot = THIMBLE_DOT_TABLE(ProbeDot).Get();
    const auto pair_dot = THIMBLE_DOT_TABLE(ProbePairDot).Get();
    for (int round = 0; round < 20000; ++round) {
      float sum[16], got[16], got_pair[32];
      uint32_t x[16], w[16];
      for (int i = 0; i < 16; ++i) {
        sum[i] = AnyFloat(random);
        x[i] = AnyPair(random);
        w[i] = AnyPair(random);
      }
      dot(sum, x, w, got);
      pair_dot(sum, x, w, got_pair);
      for (int i = 0; i < 16; ++i) {
        const float want = dot::DotOf(sum[i], x[i], w[i]);
        const float want_pair = dot::DotOf(sum[i], x[i], w[0]);
        if (std::isnan(want) || std::isnan(want_pair)) continue;
        ASSERT_EQ(BitsOf(got[i]), BitsOf(want))
            << sum[i] << " " << std::hex << x[i] << " " << w[i];
        ASSERT_EQ(BitsOf(got_pair[i]), BitsOf(want_pair));
        ASSERT_EQ(BitsOf(got_pair[16 + i]), BitsOf(want_pair));
      }
    }
  });
}

TEST(DotLanes, KnowWhichProductIsAddedFirst) {
  // 2^-24 is half of the last place of 1: a tie goes to even, twice. Added to
  // each other first, they would make a whole.
  const float half_place = std::ldexp(1.0f, -24);
  const uint32_t one = BitsOf(1.0f) >> 16;
  const uint32_t tiny = BitsOf(half_place) >> 16;
  const uint32_t huge = BitsOf(std::ldexp(1.0f, 30)) & 0xFFFF0000u;
  testing::ForEachDotForm([&] {
    const auto dot = THIMBLE_DOT_TABLE(ProbeDot).Get();
    float sum[16], got[16];
    uint32_t x[16], w[16];
    for (int i = 0; i < 16; ++i) {
      sum[i] = 1.0f;
      x[i] = tiny | tiny << 16;
      w[i] = one | one << 16;
    }
    dot(sum, x, w, got);
    for (const float v : got) EXPECT_EQ(v, 1.0f);
    for (int i = 0; i < 16; ++i) {
      sum[i] = -std::ldexp(1.0f, 30);
      x[i] = one | huge;  // the upper one cancels the sum before one is added
    }
    dot(sum, x, w, got);
    for (const float v : got) EXPECT_EQ(v, 1.0f);
  });
}

TEST(DotLanes, RoundToNearestEven) {
  std::mt19937 random(2);
  const std::vector<float> edges = {
      0.0f,
      -0.0f,
      1.00390625f,  // a tie
      1.01171875f,  // the next one
      std::numeric_limits<float>::max(),
      std::numeric_limits<float>::infinity(),
      -std::numeric_limits<float>::infinity(),
      std::numeric_limits<float>::min(),
      std::numeric_limits<float>::denorm_min(),
      -std::numeric_limits<float>::denorm_min(),
      FloatOf(0x7F800001u),  // NaN with nothing in the upper half
      FloatOf(0xFFFFFFFFu)};
  testing::ForEachDotForm([&] {
    const auto round = THIMBLE_DOT_TABLE(ProbeRound).Get();
    for (size_t n = 0; n < 20000; ++n) {
      float low[16], high[16];
      for (size_t i = 0; i < 16; ++i) {
        low[i] = n == 0 ? edges[i % edges.size()] : AnyFloat(random);
        high[i] = n == 0 ? edges[(i + 5) % edges.size()] : AnyFloat(random);
      }
      uint16_t packed[32], zipped[32], halves[32];
      round(low, high, packed, zipped, halves);
      for (size_t i = 0; i < 16; ++i) {
        ASSERT_EQ(packed[i], dot::Bf16Of(low[i])) << low[i];
        ASSERT_EQ(packed[16 + i], dot::Bf16Of(high[i])) << high[i];
        ASSERT_EQ(zipped[2 * i], dot::Bf16Of(low[i])) << low[i];
        ASSERT_EQ(zipped[2 * i + 1], dot::Bf16Of(high[i])) << high[i];
        const size_t place = i % 8 * 4 + i / 8;
        ASSERT_EQ(halves[place], packed[i]) << i;
        ASSERT_EQ(halves[place + 2], packed[16 + i]) << i;
      }
    }
  });
}

TEST(DotLanes, SplitPairs) {
  std::mt19937 random(3);
  testing::ForEachDotForm([&] {
    uint32_t words[16];
    for (uint32_t& word : words) word = AnyPair(random);
    float even[16], odd[16];
    THIMBLE_DOT_TABLE(ProbeHalves).Get()(words, even, odd);
    for (int i = 0; i < 16; ++i) {
      EXPECT_EQ(BitsOf(even[i]), words[i] << 16);
      EXPECT_EQ(BitsOf(odd[i]), words[i] & 0xFFFF0000u);
    }
  });
}

TEST(DotLanes, PackHalvesOfTwoVectorsAsTheyAre) {
  std::mt19937 random(4);
  testing::ForEachDotForm([&] {
    uint32_t words[32];
    for (uint32_t& word : words) word = static_cast<uint32_t>(random());
    uint16_t to[2][32];
    THIMBLE_DOT_TABLE(ProbePacks).Get()(words, words + 16, to);
    for (int i = 0; i < 32; ++i) {
      EXPECT_EQ(to[0][i], words[i] & 0xFFFFu);
      EXPECT_EQ(to[1][i], words[i] >> 16);
    }
  });
}

TEST(DotLanes, MoveWithinRows) {
  testing::ForEachDotForm([&] {
    float from[16], to[13][16];
    for (int i = 0; i < 16; ++i) {
      from[i] = static_cast<float>(i + 1) * (i % 3 == 0 ? -1.0f : 1.0f);
    }
    from[7] = std::numeric_limits<float>::quiet_NaN();
    THIMBLE_DOT_TABLE(ProbeMoves).Get()(from, to);
    const auto same = [](float a, float b) { return BitsOf(a) == BitsOf(b); };
    for (int row = 0; row < 3; ++row) {
      const int width = 16 >> row;
      for (int i = 0; i < 16; ++i) {
        const float before = i % width == 0 ? 0.0f : from[i - 1];
        const float behind = i % width == width - 1 ? 0.0f : from[i + 1];
        EXPECT_TRUE(same(to[row][i], before)) << width << " " << i;
        EXPECT_TRUE(same(to[row + 3][i], behind)) << width << " " << i;
      }
    }
    for (int i = 0; i < 16; ++i) {
      EXPECT_TRUE(same(to[6][i], from[i] < 0.0f ? 0.0f : from[i]));
      EXPECT_TRUE(same(to[8][i], from[i] < 4.0f ? 4.0f : from[i]));
      EXPECT_TRUE(same(to[10 + i / 8][i % 8 * 2], from[i]));
      EXPECT_EQ(to[10 + i / 8][i % 8 * 2 + 1], 0.5f);
      EXPECT_EQ(to[12][i], from[i] > 0.0f ? 1.0f : 0.0f);
      if (i == 7) continue;
      EXPECT_EQ(to[9][i], i % 4 == 0 ? 0.0f : from[i] + 1.0f);
      EXPECT_EQ(to[7][i], std::fma(from[i], from[i], -1.0f));
    }
  });
}

TEST(DotLanes, LoadAndStorePieces) {
  testing::ForEachDotForm([&] {
    uint32_t from[16], to[5][16];
    for (uint32_t i = 0; i < 16; ++i) from[i] = i * 0x01010101u;
    THIMBLE_DOT_TABLE(ProbePieces).Get()(from, to);
    for (uint32_t i = 0; i < 16; ++i) {
      EXPECT_EQ(to[0][i], from[(i + 8) % 16]);
      EXPECT_EQ(to[1][i], from[(i + 8) % 16]);
      EXPECT_EQ(to[2][i], from[12 - i / 4 * 4 + i % 4]);
      EXPECT_EQ(to[3][i], from[12 - i / 4 * 4 + i % 4]);
      EXPECT_EQ(to[4][i], i < 9 ? from[i + 7] : 0u);
    }
  });
}

// Words that masks leave out are not there.
TEST(DotLanes, LoadEverySecondQuarterOfWhatIsThere) {
  testing::GuardPageBuffer<uint32_t> behind(28);
  for (uint32_t i = 0; i < 28; ++i) behind.data()[i] = i + 1;
  testing::ForEachDotForm([&] {
    const auto load = THIMBLE_DOT_TABLE(ProbeQuarters).Get();
    uint32_t to[2][16];
    load(behind.data(), 0xFFFF, 0x0FFF, to);
    for (uint32_t i = 0; i < 16; ++i) {
      const uint32_t even = i / 4 * 8 + i % 4;
      EXPECT_EQ(to[0][i], even + 1);
      EXPECT_EQ(to[1][i], even + 4 < 28 ? even + 5 : 0);
    }
    load(behind.data() - 4, 0xFFF0, 0xFFFF, to);
    for (uint32_t i = 0; i < 16; ++i) {
      const uint32_t even = i / 4 * 8 + i % 4;
      EXPECT_EQ(to[0][i], even < 4 ? 0 : even - 3);
      EXPECT_EQ(to[1][i], even + 1);
    }
  });
}

TEST(DotLanes, Transpose) {
  testing::ForEachDotForm([&] {
    uint32_t words[16][16], pairs[8][16];
    for (uint32_t i = 0; i < 256; ++i) words[i / 16][i % 16] = i;
    for (uint32_t i = 0; i < 128; ++i) pairs[i / 16][i % 16] = i;
    THIMBLE_DOT_TABLE(ProbeTransposes).Get()(words, pairs);
    for (uint32_t i = 0; i < 256; ++i) {
      EXPECT_EQ(words[i % 16][i / 16], i);
    }
    for (uint32_t i = 0; i < 128; ++i) {
      EXPECT_EQ(pairs[i % 16 / 2][i / 16 * 2 + i % 2], i);
    }
  });
}

}  // namespace
}  // namespace thimble::kernels
#endif  // x86-64
