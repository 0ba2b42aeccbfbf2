// SPDX-License-Identifier: Apache-2.0
//
// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel Random
// Numbers: As Easy as 1, 2, 3", SC 2011). A number is a pure function of its
// address (seed, step, stream, element), so a dropout mask that is recomputed
// is the same mask, in any order and on any number of threads, and nothing has
// to be stored. Uniform and normal numbers use exactly rounded arithmetic only
// (no libm, whose last bit depends on the CPU), so they do not depend on the
// machine.
//
// Pure functions and immutable values: safe from every thread.
#pragma once

#include <array>
#include <cstdint>

namespace thimble {

using PhiloxBlock = std::array<uint32_t, 4>;
using PhiloxKey = std::array<uint32_t, 2>;

// The ten-round bijection of counters under `key`.
constexpr PhiloxBlock Philox4x32(PhiloxBlock counter, PhiloxKey key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(a)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

// Uniform in [0, 1): a multiple of 2^-24, hence exact in f32.
constexpr float UniformFromBits(uint32_t bits) {
  return static_cast<float>(bits >> 8) * 0x1p-24f;
}

// Two independent standard normal numbers (Box-Muller): radius from `a`, angle
// from `b`. Always finite, at most 6.7 in magnitude.
std::array<float, 2> NormalPairFromBits(uint32_t a, uint32_t b);

// The numbers of one (seed, step, stream). `stream` names the consumer: an op's
// index, or one of the constants below for the rest of the library. Different
// addresses never share a counter.
class RandomStream {
 public:
  // Elements are four to a block, and the block's number is 32 bits wide.
  static constexpr uint64_t kMaxElements = uint64_t{1} << 34;
  static constexpr uint32_t kFirstReservedStream = 0xFFFFFF00;

  constexpr RandomStream(uint64_t seed, uint64_t step, uint32_t stream)
      : key_{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)},
        step_{static_cast<uint32_t>(step), static_cast<uint32_t>(step >> 32)},
        stream_(stream) {}

  // The bits of elements 4*block .. 4*block+3.
  constexpr PhiloxBlock Block(uint32_t block) const {
    return Philox4x32({block, step_[0], step_[1], stream_}, key_);
  }

  // REQUIRES, for all three: element < kMaxElements. Whoever needs many numbers
  // takes whole Blocks: each call here computes a block of four.
  uint32_t Bits(uint64_t element) const;
  float Uniform(uint64_t element) const;
  float Normal(uint64_t element) const;

  // 64 bits for keying something else, such as a KeyedPermutation.
  constexpr uint64_t Key() const {
    const PhiloxBlock bits = Block(0);
    return (uint64_t{bits[1]} << 32) | bits[0];
  }

 private:
  PhiloxKey key_;
  std::array<uint32_t, 2> step_;
  uint32_t stream_;
};

// The streams that belong to no op, all of them, so that no two are the same.
// The order of an epoch; step = epoch.
inline constexpr uint32_t kOrderStream = RandomStream::kFirstReservedStream;
// Crops and flips; step = epoch, block = record.
inline constexpr uint32_t kAugmentStream = kOrderStream + 1;
// Which records are held out for validation.
inline constexpr uint32_t kHoldOutStream = kOrderStream + 2;
// What an update rounds by chance: four streams for each parameter, the first
// for itself, the others for what the optimizer keeps of it. Ops have smaller
// numbers. REQUIRES: position < 2^28.
constexpr uint32_t UpdateStream(uint32_t position) {
  return 0x80000000u + 4 * position;
}
// What a gradient in blocks rounds by chance, counted from 0 in the order in
// which the ops of a program make them. REQUIRES: number < 2^29.
constexpr uint32_t GradientStream(uint32_t number) {
  return 0xC0000000u + number;
}
// The positions of a sparse pattern: four streams for each matrix of a pool,
// two for its first pattern, two for what a rewiring grows. REQUIRES: matrix <
// 2^26.
constexpr uint32_t PatternStream(uint32_t matrix) {
  return 0xE0000000u + 4 * matrix;
}
// Which matrix gets the difference when a rewiring's growth is rounded; element
// = draw.
inline constexpr uint32_t kGrowthStream = kOrderStream + 3;
// The order of prepared sentences of one length; block = line.
inline constexpr uint32_t kTextOrderStream = kOrderStream + 4;

}  // namespace thimble
