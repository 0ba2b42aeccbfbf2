// SPDX-License-Identifier: Apache-2.0
#include "base/permutation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace thimble {
namespace {

void ExpectBijection(uint64_t n, uint64_t key) {
  const KeyedPermutation permutation(n, key);
  ASSERT_EQ(permutation.size(), n);
  std::vector<bool> hit(n, false);
  for (uint64_t i = 0; i < n; ++i) {
    const uint64_t j = permutation(i);
    ASSERT_LT(j, n) << "n=" << n << " key=" << key;
    ASSERT_FALSE(hit[j]) << "n=" << n << " key=" << key << " j=" << j;
    hit[j] = true;
  }
}

TEST(KeyedPermutation, IsABijectionForEverySmallSize) {
  for (uint64_t n = 1; n <= 200; ++n) {
    for (uint64_t key = 0; key < 5; ++key) ExpectBijection(n, key);
  }
}

TEST(KeyedPermutation, IsABijectionForDatasetSizes) {
  for (uint64_t n : {45000, 50000, 60000, 65536, 65537}) ExpectBijection(n, 99);
}

TEST(KeyedPermutation, HandlesTheLargestSize) {
  const uint64_t n = uint64_t{1} << 62;
  const KeyedPermutation permutation(n, 5);
  EXPECT_LT(permutation(n - 1), n);
  EXPECT_NE(permutation(0), permutation(n - 1));
}

TEST(KeyedPermutation, DependsOnTheKey) {
  const uint64_t n = 60000;
  const KeyedPermutation a(n, 1);
  const KeyedPermutation b(n, 2);
  const KeyedPermutation c(n, uint64_t{1} << 32);
  int same = 0;
  for (uint64_t i = 0; i < n; ++i) same += (a(i) == b(i)) + (a(i) == c(i));
  // Two random permutations agree in one place on average (Poisson).
  EXPECT_LT(same, 15);
}

TEST(KeyedPermutation, ReachesEveryOrderOfThree) {
  std::set<std::vector<uint64_t>> orders;
  for (uint64_t key = 0; key < 400; ++key) {
    const KeyedPermutation p(3, key);
    orders.insert({p(0), p(1), p(2)});
  }
  EXPECT_EQ(orders.size(), 6u);
}

// Chi-squared over keys: where 0, 7 and 49 of 50 go must be uniform.
TEST(KeyedPermutation, SendsAnIndexEverywhereEquallyOften) {
  constexpr uint64_t kSize = 50;
  constexpr int kKeys = 20000;
  for (uint64_t index : {0, 7, 49}) {
    std::vector<int> count(kSize, 0);
    for (uint64_t key = 0; key < kKeys; ++key) {
      ++count[KeyedPermutation(kSize, key)(index)];
    }
    double chi_squared = 0;
    const double expected = double{kKeys} / kSize;
    for (int c : count)
      chi_squared += (c - expected) * (c - expected) / expected;
    // 49 degrees of freedom: mean 49, deviation sqrt(98); five of them.
    EXPECT_LT(chi_squared, 49 + 5 * std::sqrt(98.0)) << index;
  }
}

// Neighbours must not stay neighbours: the correlation of i and p(i), and of
// p(i) and p(i+1), is that of independent uniform numbers.
TEST(KeyedPermutation, LeavesNoTrendInTheOrder) {
  constexpr uint64_t kSize = 45000;
  const KeyedPermutation permutation(kSize, 2024);
  const double mean = (kSize - 1) / 2.0;
  const double variance = (double{kSize} * kSize - 1) / 12.0;
  double with_index = 0;
  double with_next = 0;
  for (uint64_t i = 0; i + 1 < kSize; ++i) {
    const double here = static_cast<double>(permutation(i)) - mean;
    const double next = static_cast<double>(permutation(i + 1)) - mean;
    with_index += here * (static_cast<double>(i) - mean);
    with_next += here * next;
  }
  const double bound = 5 / std::sqrt(double{kSize});
  EXPECT_NEAR(with_index / kSize / variance, 0, bound);
  EXPECT_NEAR(with_next / kSize / variance, 0, bound);
}

TEST(KeyedPermutation, RefusesWhatIsOutOfRange) {
  EXPECT_DEATH(KeyedPermutation(0, 1), "check failed");
  const KeyedPermutation permutation(10, 1);
  EXPECT_DEATH(permutation(10), "check failed");
}

}  // namespace
}  // namespace thimble
