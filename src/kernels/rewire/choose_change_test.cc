// SPDX-License-Identifier: Apache-2.0
#include "kernels/rewire/choose_change.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "base/half.h"
#include "kernels/rewire/magnitude.h"

namespace thimble::kernels {
namespace {

// What grows in each matrix.
std::vector<int64_t> Shared(std::vector<MatrixChange> changes, uint64_t seed) {
  ShareGrowth(RandomStream(seed, 1, kGrowthStream), changes);
  std::vector<int64_t> grown;
  int64_t total = 0;
  for (const MatrixChange& c : changes) {
    grown.push_back(c.grown);
    total += c.grown - c.pruned;
    EXPECT_GE(c.grown, 0);
    EXPECT_LE(c.new_kept(), c.blocks);
  }
  EXPECT_EQ(total, 0);
  return grown;
}

using Grown = std::vector<int64_t>;

TEST(ShareGrowth, FollowsSurvivors) {
  // 30 and 60 survive of 100 each, so that 40 and 80 of 120 grow.
  EXPECT_EQ(Shared({{.blocks = 999, .kept = 110, .pruned = 80},
                    {.blocks = 999, .kept = 100, .pruned = 40}},
                   1),
            (Grown{40, 80}));
  EXPECT_EQ(Shared({{.blocks = 9, .kept = 4}, {.blocks = 9, .kept = 4}}, 1),
            (Grown{0, 0}));
}

TEST(ShareGrowth, WhatIsRoundedOffGoesToOneAtRandom) {
  // Shares of 1 / 3 each are rounded to nothing.
  const std::vector<MatrixChange> third(
      3, {.blocks = 99, .kept = 10, .pruned = 0});
  auto changes = third;
  changes[0] = {.blocks = 99, .kept = 11, .pruned = 1};
  std::map<Grown, int> seen;
  for (uint64_t seed = 0; seed < 300; ++seed) ++seen[Shared(changes, seed)];
  ASSERT_EQ(seen.size(), 3u);
  for (const auto& [grown, times] : seen) {
    // Five standard errors of 100.
    EXPECT_NEAR(times, 100, 5 * std::sqrt(300 * 2.0 / 9));
  }
}

TEST(ShareGrowth, HalvesAreRoundedToEvenAndNoMoreIsPlacedThanThereIs) {
  // Shares of 3 / 2 each are 2, one too many; one of them gets one less.
  const std::vector<MatrixChange> halves = {
      {.blocks = 99, .kept = 8, .pruned = 3}, {.blocks = 99, .kept = 5}};
  std::map<Grown, int> seen;
  for (uint64_t seed = 0; seed < 64; ++seed) ++seen[Shared(halves, seed)];
  EXPECT_EQ(seen.size(), 2u);
  EXPECT_TRUE(seen.contains(Grown{1, 2}) && seen.contains(Grown{2, 1}));
  // Shares of 0.75 of 3 blocks are 1 for four matrices, one too many. Where a
  // fifth without a share is to have one less, the fourth comes too late.
  std::vector<MatrixChange> many(4, {.blocks = 999, .kept = 250});
  many[0] = {.blocks = 999, .kept = 250 + 3, .pruned = 3};
  seen.clear();
  many.push_back({.blocks = 999, .kept = 1});
  for (uint64_t seed = 0; seed < 128; ++seed) ++seen[Shared(many, seed)];
  EXPECT_EQ(seen.size(), 4u);
  EXPECT_GT(seen[(Grown{1, 1, 1, 0, 0})], seen[(Grown{0, 1, 1, 1, 0})]);
}

TEST(ShareGrowth, WhatAFullMatrixCannotTakeGoesToOthers) {
  EXPECT_EQ(Shared({{.blocks = 100, .kept = 99},
                    {.blocks = 999, .kept = 60, .pruned = 50}},
                   1),
            (Grown{1, 49}));
}

TEST(ShareGrowth, AMatrixWithoutSurvivorsTakesWhatNoOtherCan) {
  // All shares are the first one's, which is full.
  EXPECT_EQ(Shared({{.blocks = 60, .kept = 60, .pruned = 20},
                    {.blocks = 30, .kept = 0}},
                   1),
            (Grown{0, 20}));
}

TEST(ShareGrowth, PrunedPositionsAreTheLastResort) {
  EXPECT_EQ(Shared({{.blocks = 60, .kept = 60, .pruned = 20}}, 1), Grown{20});
  const Grown grown = Shared({{.blocks = 60, .kept = 58, .pruned = 20},
                              {.blocks = 40, .kept = 39, .pruned = 10}},
                             1);
  EXPECT_EQ(grown[0] + grown[1], 30);
}

TEST(NextThreshold, FollowsWhatWasPruned) {
  EXPECT_EQ(NextThreshold(1, 1101, 1000), 0.5f);
  EXPECT_EQ(NextThreshold(1, 1100, 1000), 1.0f);
  EXPECT_EQ(NextThreshold(1, 900, 1000), 1.0f);
  EXPECT_EQ(NextThreshold(1, 899, 1000), 2.0f);
  // It can always come back.
  EXPECT_GT(NextThreshold(0, 0, 1000), 0.0f);
  float h = 1;
  for (int i = 0; i < 999; ++i) h = NextThreshold(h, 0, 1000);
  EXPECT_TRUE(std::isfinite(2 * h));
  for (int i = 0; i < 999; ++i) h = NextThreshold(h, 9999, 1000);
  EXPECT_TRUE(std::isnormal(h));
}

TEST(Magnitude, IsThatOfEveryStoredValue) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    EXPECT_EQ(MagnitudeBits(BF16{half}),
              std::bit_cast<uint32_t>(std::abs(BF16Value(half))));
    const float f16 = F16Value(half);
    const uint32_t magnitude = MagnitudeBits(F16{half});
    if (std::isnan(f16)) {
      EXPECT_TRUE(std::isnan(std::bit_cast<float>(magnitude)));
    } else {
      EXPECT_EQ(magnitude, std::bit_cast<uint32_t>(std::abs(f16)));
    }
  }
}

MatrixChange Pruned(float threshold, std::vector<float> weights,
                    int64_t block_values = 1) {
  std::vector<MatrixChange> changes = {
      {.blocks = 99,
       .kept = static_cast<int64_t>(weights.size()) / block_values}};
  PruneBelow(threshold, F32(weights.data()), block_values, changes);
  return changes[0];
}

TEST(Prune, OnlyWhatIsSmallerThanTheThreshold) {
  EXPECT_EQ(Pruned(0.5f, {0.5f, -0.5f, 0.25f, -0.25f, 0.0f}).pruned, 3);
  EXPECT_EQ(Pruned(0.0f, {0.0f, -0.0f, 1.0f}).pruned, 0);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(Pruned(0.5f, {nan, -nan, 0.0f}).pruned, 1);
  // Means of 0.5 and 0.25.
  EXPECT_EQ(Pruned(0.5f, {0.25f, -0.75f, -0.5f, 0.0f}, 2).pruned, 1);
}

TEST(Prune, AMatrixIsNeverEmpty) {
  const MatrixChange change = Pruned(1, {0.5f, 0.25f, 0.75f});
  EXPECT_EQ(change.pruned, 2);
  EXPECT_TRUE(change.keeps_first);
  EXPECT_EQ(Pruned(1, {0.5f}).pruned, 0);
  EXPECT_EQ(Pruned(1, {}).pruned, 0);
}

}  // namespace
}  // namespace thimble::kernels
