// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/blocks_test.cc"
#include <gtest/gtest.h>
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/rng.h"
#include "kernels/blocks-inl.h"
#include "kernels/guard_page.h"
#include "kernels/storage_reference.h"
#include "kernels/target.h"
#include "kernels/testing.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

void Decode(BlockCoding coding, size_t n, const uint8_t* codes, BF16 scale,
            float* values) {
  DecodeBlock(coding, n, codes, scale, values);
}
void Encode(BlockCoding coding, size_t n, const float* values,
            const RandomAddress& random, int64_t block, uint8_t* codes,
            BF16* scale) {
  EncodeBlock(coding, n, values, PhiloxKeys(random.seed), random, block, codes,
              scale);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace thimble::kernels {
namespace {

using testing::ForEachTarget;
using testing::GuardPageBuffer;
using testing::TestValue;

constexpr BlockCoding kCodings[] = {BlockCoding::kSigned,
                                    BlockCoding::kSquareRoot};
constexpr RandomAddress kRandom = {17, 4, 0x80000001u};

// The bits of element i of a block, by the rule of kernels/random.h.
uint32_t BitsOf(const RandomAddress& random, uint32_t block, uint32_t i) {
  return RandomStream(random.seed, random.step, random.stream)
      .Block(block * uint32_t{kRandomBlocks} +
             i % uint32_t{kRandomBlocks})[i / kRandomBlocks];
}

float Wide(BF16 scale) {
  return std::bit_cast<float>(static_cast<uint32_t>(scale.bits) << 16);
}

// A block as it is after it was written and read.
struct Coded {
  Coded(BlockCoding coding, const std::vector<float>& from,
        const RandomAddress& random = kRandom, int64_t block = 3)
      : codes(from.size()), values(from.size()) {
    THIMBLE_DISPATCH(Encode).Get()(coding, from.size(), from.data(), random,
                                   block, codes.data(), &scale);
    THIMBLE_DISPATCH(Decode).Get()(coding, from.size(), codes.data(), scale,
                                   values.data());
  }
  std::vector<uint8_t> codes;
  std::vector<float> values;
  BF16 scale;
};

// Of magnitudes from 2^size down to 2^(size - 12); not negative for squares.
std::vector<float> SomeValues(BlockCoding coding, size_t n, uint64_t seed,
                              int size) {
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i) {
    const float x = TestValue(seed, i);
    values[i] = std::ldexp(x, size - static_cast<int>(i * 5 % 13));
    if (coding == BlockCoding::kSquareRoot) values[i] = std::abs(values[i]);
  }
  return values;
}

TEST(Blocks, AreTheDefinitionOnEveryTarget) {
  ForEachTarget([] {
    for (const BlockCoding coding : kCodings) {
      for (size_t n = 1; n <= kBlockValues; ++n) {
        for (const int size : {-120, -30, 0, 100}) {
          const auto from = SomeValues(coding, n, n, size);
          const Coded got(coding, from);
          const float scale = Wide(got.scale);
          for (size_t i = 0; i < n; ++i) {
            ASSERT_EQ(got.codes[i],
                      reference::BlockCode(
                          coding, from[i], scale,
                          BitsOf(kRandom, 3, static_cast<uint32_t>(i))))
                << i << " of " << n;
            ASSERT_EQ(got.values[i], static_cast<float>(reference::BlockValue(
                                         coding, got.codes[i], scale)));
          }
        }
      }
    }
  });
}

// The scale is large enough for the largest value, and hardly larger: bf16 has
// eight bits.
TEST(Blocks, TheLargestValueHasOneOfTheLargestCodes) {
  ForEachTarget([] {
    for (const BlockCoding coding : kCodings) {
      for (uint64_t seed = 0; seed < 200; ++seed) {
        const auto from = SomeValues(coding, kBlockValues, seed, 3);
        float largest = 0;
        for (const float x : from) largest = std::max(largest, std::abs(x));
        if (coding == BlockCoding::kSquareRoot) largest = std::sqrt(largest);
        const double top = BlockTop(coding);
        const double scale = Wide(Coded(coding, from).scale);
        EXPECT_LE(largest / top, scale * (1 + 0x1p-23));
        EXPECT_GE(largest / top, scale * (1 - 0x1p-7));
      }
    }
  });
}

TEST(Blocks, ZerosAreZeros) {
  ForEachTarget([] {
    const std::vector<uint8_t> codes(kBlockValues, 0);
    for (const BlockCoding coding : kCodings) {
      std::vector<float> values(kBlockValues, 1.0f);
      THIMBLE_DISPATCH(Decode).Get()(coding, kBlockValues, codes.data(), {0},
                                     values.data());
      EXPECT_EQ(values, std::vector<float>(kBlockValues, 0.0f));
      EXPECT_EQ(Coded(coding, values).codes, codes);
      EXPECT_EQ(Coded(coding, values).scale.bits, 0);
    }
  });
}

TEST(Blocks, ExactValuesStay) {
  ForEachTarget([] {
    for (const BlockCoding coding : kCodings) {
      const auto top = static_cast<int>(BlockTop(coding));
      std::vector<float> from = {0.0f};
      for (int code = top; from.size() < kBlockValues; code -= 4) {
        const float root = static_cast<float>(code) * 0x1.48p-9f;
        from.push_back(coding == BlockCoding::kSigned ? root : root * root);
      }
      for (uint32_t stream = 0; stream < 50; ++stream) {
        ASSERT_EQ(Coded(coding, from, kRandom.Next(stream)).values, from);
      }
    }
  });
}

// As of f16 and bf16 (stochastic_test.cc): each value many times, and all of
// them together, within their standard errors.
TEST(Blocks, AreUnbiasedWithinTheirStandardError) {
  ForEachTarget([] {
    constexpr int kDraws = 16384;
    for (const BlockCoding coding : kCodings) {
      const auto from = SomeValues(coding, kBlockValues, 8, 0);
      const Coded first(coding, from);
      const double scale = Wide(first.scale);
      std::vector<double> sums(from.size(), 0.0), squares(from.size(), 0.0);
      for (int draw = 0; draw < kDraws; ++draw) {
        const Coded coded(coding, from, kRandom, draw);
        for (size_t i = 0; i < from.size(); ++i) {
          const double off = static_cast<double>(coded.values[i]) - from[i];
          sums[i] += off;
          squares[i] += off * off;
        }
      }
      double errors = 0, variances = 0;
      for (size_t i = 0; i < from.size(); ++i) {
        // Below one code a second moment is raised to it on purpose.
        if (coding == BlockCoding::kSquareRoot && std::sqrt(from[i]) < scale) {
          EXPECT_GT(sums[i], 0);
          continue;
        }
        const double variance = squares[i] / kDraws / kDraws;
        EXPECT_LE(std::abs(sums[i] / kDraws), 6 * std::sqrt(variance) + 1e-9);
        errors += sums[i] / kDraws;
        variances += variance;
      }
      ASSERT_GT(variances, 0);
      EXPECT_LE(std::abs(errors), 4 * std::sqrt(variances));
    }
  });
}

TEST(Blocks, ASquareAboveZeroStaysAboveZero) {
  ForEachTarget([] {
    std::vector<float> from(kBlockValues, 1e-12f);
    from[5] = 1.0f;
    from[6] = 0.0f;
    const Coded coded(BlockCoding::kSquareRoot, from);
    for (size_t i = 0; i < from.size(); ++i) {
      EXPECT_EQ(coded.values[i] > 0, i != 6) << i;
    }
  });
}

TEST(Blocks, WhatIsNotFiniteShows) {
  ForEachTarget([] {
    for (const BlockCoding coding : kCodings) {
      for (const float bad : {INFINITY, NAN}) {
        for (const size_t at : {0u, 40u}) {
          std::vector<float> from(41, 1.0f);
          from[at] = bad;
          for (const float x : Coded(coding, from).values) {
            ASSERT_TRUE(std::isnan(x));
          }
        }
      }
    }
  });
}

TEST(Blocks, StayInsideTheirBytes) {
  ForEachTarget([] {
    for (size_t n = 1; n <= kBlockValues; ++n) {
      GuardPageBuffer<float> values(n);
      GuardPageBuffer<uint8_t> codes(n);
      BF16 scale;
      for (const BlockCoding coding : kCodings) {
        for (size_t i = 0; i < n; ++i) values[i] = 2.0f;
        THIMBLE_DISPATCH(Encode).Get()(coding, n, values.data(), kRandom, 0,
                                       codes.data(), &scale);
        THIMBLE_DISPATCH(Decode).Get()(coding, n, codes.data(), scale,
                                       values.data());
        EXPECT_NEAR(values[n - 1], 2.0f, 0.02f);
      }
    }
  });
}

}  // namespace
}  // namespace thimble::kernels
#endif  // HWY_ONCE
