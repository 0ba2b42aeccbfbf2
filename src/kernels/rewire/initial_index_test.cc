// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/rewire/rewire.h"
#include "kernels/testing.h"
#include "thimble/sparse_weights.h"

namespace thimble::kernels {
namespace {

using testing::GuardedBuffer;

std::vector<bool> MaskOf(const Pattern& pattern) {
  std::vector<bool> mask(static_cast<size_t>(pattern.matrix.blocks()));
  PatternReader reader(pattern);
  std::vector<uint16_t> columns(static_cast<size_t>(pattern.matrix.columns));
  while (reader.row() < pattern.matrix.rows) {
    const int64_t row = reader.row();
    const int64_t n = reader.count();
    reader.Read(columns.data());
    for (int64_t i = 0; i < n; ++i) {
      mask[static_cast<size_t>(row * pattern.matrix.columns +
                               columns[static_cast<size_t>(i)])] = true;
    }
  }
  return mask;
}

TEST(InitialIndex, KeepsTheShareOfEachMatrix) {
  EXPECT_EQ(KeptOf(0.3, {16, 144}), 691);
  EXPECT_EQ(KeptOf(0.3, {1, 10}), 3);
  EXPECT_EQ(KeptOf(0.29, {1, 100}), 29);  // 28.999999999999996 in f64
  EXPECT_EQ(KeptOf(1, {7, 1}), 7);
  EXPECT_EQ(KeptOf(0.01, {7, 1}), 1);  // never none
}

TEST(InitialIndex, IsAnIndexOfTheLayout) {
  const std::vector<BlockMatrix> matrices = {{3, 7}, {1, 1}, {16, 144}, {5, 9}};
  for (const std::vector<int64_t>& kept :
       std::vector<std::vector<int64_t>>{{5, 1, 700, 45}, {21, 0, 1, 0}}) {
    for (const IndexCodec codec : {IndexCodec::kPacked, IndexCodec::kBitmap}) {
      const PoolLayout layout(matrices, {},
                              std::reduce(kept.begin(), kept.end()), codec);
      GuardedBuffer<std::byte> index(layout.index_bytes());
      WriteInitialIndex(layout, kept, 1, index.data());
      index.CheckGuards("index");
      const Status status = CheckIndex(layout, index.span());
      EXPECT_TRUE(status.ok()) << status.message();
      for (size_t m = 0; m < kept.size(); ++m) {
        EXPECT_EQ(layout.Of(index.data(), m).kept, kept[m]);
      }
    }
  }
}

TEST(InitialIndex, IsAFunctionOfTheSeed) {
  const std::vector<int64_t> kept = {90, 90};
  const PoolLayout layout({{10, 30}, {10, 30}}, {}, 180, IndexCodec::kBitmap);
  const auto index_of = [&](uint64_t seed) {
    std::vector<std::byte> index(layout.index_bytes(), std::byte(seed));
    WriteInitialIndex(layout, kept, seed, index.data());
    return index;
  };
  EXPECT_EQ(index_of(1), index_of(1));
  EXPECT_NE(index_of(1), index_of(2));
  const auto index = index_of(1);
  EXPECT_NE(MaskOf(layout.Of(index.data(), 0)),
            MaskOf(layout.Of(index.data(), 1)));
}

// How often something of probability `p` happened in `n` trials, in standard
// errors from what is expected.
double Deviation(int64_t count, double p, int64_t n) {
  const auto trials = static_cast<double>(n);
  return (static_cast<double>(count) - p * trials) /
         std::sqrt(trials * p * (1 - p));
}

TEST(InitialIndex, EveryPositionAndEveryPairAreEquallyLikely) {
  constexpr int64_t kTrials = 4000, kBlocks = 91, kKept = 20;
  const PoolLayout layout({{7, 13}}, {}, kKept, IndexCodec::kPacked);
  const std::vector<int64_t> kept = {kKept};
  std::vector<std::byte> index(layout.index_bytes());
  std::vector<int64_t> single(kBlocks), pairs(kBlocks * kBlocks);
  for (uint64_t seed = 0; seed < kTrials; ++seed) {
    WriteInitialIndex(layout, kept, seed, index.data());
    const auto mask = MaskOf(layout.Of(index.data(), 0));
    for (size_t i = 0; i < kBlocks; ++i) {
      if (!mask[i]) continue;
      ++single[i];
      for (size_t j = i + 1; j < kBlocks; ++j)
        pairs[i * kBlocks + j] += mask[j];
    }
  }
  // Of so many normal numbers, one over `most` is expected once in 10,000 tests
  // (4,186 pairs; 1 - erf).
  const auto most = [](double numbers) {
    double z = 3;
    while (numbers * std::erfc(z / std::sqrt(2)) > 1e-4) z += 0.01;
    return z;
  };
  const double p = double{kKept} / kBlocks;
  const double both = p * (kKept - 1) / (kBlocks - 1);
  for (size_t i = 0; i < kBlocks; ++i) {
    EXPECT_LT(std::abs(Deviation(single[i], p, kTrials)), most(kBlocks)) << i;
    for (size_t j = i + 1; j < kBlocks; ++j) {
      EXPECT_LT(std::abs(Deviation(pairs[i * kBlocks + j], both, kTrials)),
                most(kBlocks * (kBlocks - 1) / 2.0))
          << i << ' ' << j;
    }
  }
}

}  // namespace
}  // namespace thimble::kernels
