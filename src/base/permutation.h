// SPDX-License-Identifier: Apache-2.0
//
// KeyedPermutation: a pseudo-random bijection of [0, n) in a few words of
// memory. It is how an epoch is shuffled without an index array, which for
// 50,000 examples would take 200 KB that no small plan can carry.
//
// A balanced Feistel network permutes the smallest power of four that holds n;
// results outside [0, n) are fed in again (cycle walking), which ends because a
// permutation's cycle leads back inside, and takes under four turns on average.
//
// Immutable; safe from every thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace thimble {

class KeyedPermutation {
 public:
  // REQUIRES: 1 <= n <= 2^62.
  KeyedPermutation(uint64_t n, uint64_t key);

  uint64_t size() const { return n_; }
  // Where index i goes. REQUIRES: i < size().
  uint64_t operator()(uint64_t i) const;

 private:
  // Four rounds make a strong permutation of a large domain; tiny domains,
  // where a round function has only one or two bits, need more to look random.
  static constexpr size_t kRounds = 8;

  uint64_t Encrypt(uint64_t x) const;

  uint64_t n_;
  int half_bits_;
  std::array<uint64_t, kRounds> round_keys_;
};

}  // namespace thimble
