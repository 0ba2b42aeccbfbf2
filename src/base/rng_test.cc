// SPDX-License-Identifier: Apache-2.0
#include "base/rng.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <span>

#include "base/sha256.h"

namespace thimble {
namespace {

// Known answers: kat_vectors of the Random123 distribution.
TEST(Philox, MatchesThePublishedKnownAnswers) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(Philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                       {0xa4093822, 0x299f31d0}),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Uniform, CoversTheHalfOpenUnitInterval) {
  EXPECT_EQ(UniformFromBits(0), 0.0f);
  EXPECT_EQ(UniformFromBits(0x80000000), 0.5f);
  EXPECT_EQ(UniformFromBits(0xffffffff), 1.0f - 0x1p-24f);
}

TEST(Uniform, HasTheRightMeanAndVariance) {
  const RandomStream stream(/*seed=*/7, /*step=*/3, /*stream=*/11);
  constexpr int kCount = 100000;
  double sum = 0;
  double squares = 0;
  for (uint64_t i = 0; i < kCount; ++i) {
    const double u = stream.Uniform(i);
    sum += u;
    squares += u * u;
  }
  const double mean = sum / kCount;
  // Five standard errors of the mean and of the variance of a uniform number.
  EXPECT_NEAR(mean, 0.5, 5 * std::sqrt(1.0 / 12 / kCount));
  EXPECT_NEAR(squares / kCount - mean * mean, 1.0 / 12,
              5 * std::sqrt(1.0 / 180 / kCount));
}

TEST(Normal, AgreesWithBoxMullerByTheMathLibrary) {
  const RandomStream stream(1, 2, 3);
  constexpr double kTurn = 2 * 3.14159265358979323846;
  for (uint32_t i = 0; i < 5000; ++i) {
    const PhiloxBlock bits = stream.Block(i);
    const double radius = std::sqrt(-2 * std::log((bits[0] + 0.5) * 0x1p-32));
    const double angle = kTurn * (bits[1] + 0.5) * 0x1p-32;
    const auto [x, y] = NormalPairFromBits(bits[0], bits[1]);
    // One f32 rounding, and some double roundings before it.
    const double bound = radius * (0x1p-24 + 1e-14);
    EXPECT_NEAR(x, radius * std::cos(angle), bound) << i;
    EXPECT_NEAR(y, radius * std::sin(angle), bound) << i;
    EXPECT_EQ(stream.Normal(4 * uint64_t{i}), x);
    EXPECT_EQ(stream.Normal(4 * uint64_t{i} + 1), y);
    EXPECT_EQ(stream.Normal(4 * uint64_t{i} + 3),
              NormalPairFromBits(bits[2], bits[3])[1]);
  }
}

TEST(Normal, IsFiniteAtTheExtremeBits) {
  for (uint32_t a : {0u, 1u, 0x7fffffffu, 0xffffffffu}) {
    for (uint32_t b :
         {0u, 0x3fffffffu, 0x40000000u, 0x80000000u, 0xffffffffu}) {
      const auto [x, y] = NormalPairFromBits(a, b);
      EXPECT_LT(std::hypot(x, y), 6.8) << a << " " << b;
    }
  }
}

TEST(Normal, HasUnitVarianceAndNormalTails) {
  const RandomStream stream(123, 0, 0);
  constexpr int kCount = 200000;
  double sum = 0;
  double squares = 0;
  int beyond_two = 0;
  for (uint64_t i = 0; i < kCount; ++i) {
    const double x = stream.Normal(i);
    sum += x;
    squares += x * x;
    beyond_two += std::abs(x) > 2;
  }
  EXPECT_NEAR(sum / kCount, 0, 5 / std::sqrt(kCount));
  EXPECT_NEAR(squares / kCount, 1, 5 * std::sqrt(2.0 / kCount));
  const double tail = std::erfc(2 / std::sqrt(2.0));
  EXPECT_NEAR(beyond_two / double{kCount}, tail,
              5 * std::sqrt(tail * (1 - tail) / kCount));
}

// A golden digest: it must be the same on every machine and in every release,
// because initial weights are made of these numbers.
TEST(Normal, KeepsItsBitsForever) {
  const RandomStream stream(42, 7, 5);
  Sha256 sha;
  for (uint64_t i = 0; i < 1000; ++i) {
    const float x = stream.Normal(i);
    sha.Update(std::as_bytes(std::span(&x, 1)));
  }
  EXPECT_EQ(Hex(sha.Final()),
            "ca53508154f25d7e6826fdd0dc1c68f9faae287370ba125e224df13d2001c82b");
}

TEST(RandomStream, GivesDifferentNumbersToEveryAddress) {
  std::set<PhiloxBlock> seen;
  for (uint64_t seed : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 32}) {
    for (uint64_t step : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 32}) {
      for (uint32_t id : {0u, 1u, RandomStream::kFirstReservedStream}) {
        for (uint32_t block : {0u, 1u, 0xffffffffu}) {
          seen.insert(RandomStream(seed, step, id).Block(block));
        }
      }
    }
  }
  EXPECT_EQ(seen.size(), 81u);
}

TEST(RandomStream, AddressesElementsWithinBlocks) {
  const RandomStream stream(9, 8, 7);
  for (uint64_t i = 0; i < 16; ++i) {
    EXPECT_EQ(stream.Bits(i),
              stream.Block(static_cast<uint32_t>(i / 4))[i % 4]);
  }
  EXPECT_EQ(stream.Bits(RandomStream::kMaxElements - 1),
            stream.Block(0xffffffff)[3]);
  EXPECT_DEATH(stream.Bits(RandomStream::kMaxElements), "check failed");
}

}  // namespace
}  // namespace thimble
