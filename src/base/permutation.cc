// SPDX-License-Identifier: Apache-2.0
#include "base/permutation.h"

#include <bit>

#include "base/check.h"
#include "base/rng.h"

namespace thimble {
namespace {

constexpr uint64_t kMaxSize = uint64_t{1} << 62;

// MurmurHash3's 64-bit finaliser: every input bit reaches every output bit.
uint64_t Mix(uint64_t x) {
  x ^= x >> 33;
  x *= 0xFF51AFD7ED558CCD;
  x ^= x >> 33;
  x *= 0xC4CEB9FE1A85EC53;
  x ^= x >> 33;
  return x;
}

}  // namespace

KeyedPermutation::KeyedPermutation(uint64_t n, uint64_t key) : n_(n) {
  TH_CHECK(n >= 1 && n <= kMaxSize);
  half_bits_ = static_cast<int>((std::bit_width(n - 1) + 1) / 2);
  for (size_t round = 0; round < kRounds; ++round) {
    round_keys_[round] = RandomStream(key, round, 0).Key();
  }
}

uint64_t KeyedPermutation::Encrypt(uint64_t x) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = x >> half_bits_;
  uint64_t right = x & mask;
  for (uint64_t key : round_keys_) {
    const uint64_t next = left ^ (Mix(right ^ key) & mask);
    left = right;
    right = next;
  }
  return (left << half_bits_) | right;
}

uint64_t KeyedPermutation::operator()(uint64_t i) const {
  TH_CHECK(i < n_);
  do {
    i = Encrypt(i);
  } while (i >= n_);
  return i;
}

}  // namespace thimble
