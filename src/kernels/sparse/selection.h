// SPDX-License-Identifier: Apache-2.0
//
// Choosing positions of a matrix at random: so many of so many candidates, each
// set equally likely (to within 2^-32 for a position), in one sweep and without
// memory. Each position has a random number of its own, so what is chosen does
// not depend on how the sweep is done. Not safe from several threads.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/check.h"
#include "base/rng.h"

namespace thimble::kernels {

// How many positions are looked at as one.
inline constexpr int64_t kSweep = 64;

// Bits of the first n of them.
constexpr uint64_t FirstBits(int64_t n) {
  return n >= kSweep ? ~uint64_t{0} : (uint64_t{1} << n) - 1;
}

// The numbers of 32 bits of a matrix's positions. Most choices need the leading
// 8 bits alone, of which a Philox block holds sixteen: they are a stream of
// their own, byte p % 4 of element p / 4. The others are the upper bits of
// element p of the next stream.
class PositionNumbers {
 public:
  PositionNumbers(uint64_t seed, uint64_t step, uint32_t stream)
      : leading_(seed, step, stream), others_(seed, step, stream + 1) {}

  // The leading bits of `position` and the 63 behind it.
  const uint8_t* Leading(uint64_t position) {
    const uint64_t sweep = position / kSweep;
    if (sweep != at_) {
      if (sweep == at_ + 1) {
        std::copy(bytes_.begin() + kSweep, bytes_.end(), bytes_.begin());
      } else {
        Make(sweep, bytes_.data());
      }
      Make(sweep + 1, bytes_.data() + kSweep);
      at_ = sweep;
    }
    return bytes_.data() + position % kSweep;
  }
  uint64_t WithLeading(uint64_t leading, uint64_t position) const {
    return leading << 24 | others_.Bits(position) >> 8;
  }

 private:
  void Make(uint64_t sweep, uint8_t* bytes) const {
    for (uint32_t b = 0; b < 4; ++b, bytes += sizeof(PhiloxBlock)) {
      const PhiloxBlock block =
          leading_.Block(static_cast<uint32_t>(4 * sweep + b));
      std::memcpy(bytes, block.data(), sizeof(block));
    }
  }

  RandomStream leading_, others_;
  uint64_t at_ = UINT64_MAX - 1;
  std::array<uint8_t, 2 * kSweep> bytes_{};
};

// Selection sampling: of `left` candidates of which `wanted` are still to be
// chosen, the next one is with probability wanted / left; that is where its
// number, scaled to [0, left), is below `wanted`.
class Selection {
 public:
  // REQUIRES: 0 <= wanted <= candidates < 2^32.
  Selection(PositionNumbers& numbers, int64_t candidates, int64_t wanted)
      : numbers_(&numbers),
        left_(static_cast<uint64_t>(candidates)),
        wanted_(static_cast<uint64_t>(wanted)) {
    TH_CHECK(0 <= wanted && wanted <= candidates &&
             candidates <= int64_t{UINT32_MAX});
  }

  // Bit i of `candidates` is that of `position` + i; these are the next ones.
  // Those that are chosen.
  uint64_t Take(int64_t position, uint64_t candidates) {
    if (wanted_ == 0 || candidates == 0) return 0;
    const auto first = static_cast<uint64_t>(position);
    const uint8_t* leading = numbers_->Leading(first);
    const uint64_t before = left_;
    left_ -= static_cast<uint64_t>(std::popcount(candidates));
    uint64_t chosen = 0;
    // Nearly all are ruled out by what holds for the last one of them.
    uint64_t may =
        candidates & NotAbove(((wanted_ << 8) - 1) / (left_ + 1), leading);
    for (; may != 0 && wanted_ != 0; may &= may - 1) {
      const int i = std::countr_zero(may);
      const auto passed =
          static_cast<uint64_t>(std::popcount(candidates & FirstBits(i)));
      if (!Takes(leading[i], before - passed,
                 first + static_cast<uint64_t>(i))) {
        continue;
      }
      chosen |= uint64_t{1} << i;
      --wanted_;
    }
    return chosen;
  }

 private:
  // Which of 64 bytes are at most `most`: a larger one plus 255 - most has a
  // carry. Eight bytes at a time, seven bits of them and then the eighth.
  static uint64_t NotAbove(uint64_t most, const uint8_t* bytes) {
    if (most >= 255) return ~uint64_t{0};
    constexpr uint64_t kEach = 0x0101010101010101;
    const uint64_t add = (255 - most) * kEach;
    uint64_t bits = 0;
    for (int i = 0; i < kSweep; i += 8) {
      uint64_t x = 0;
      std::memcpy(&x, bytes + i, 8);
      const uint64_t sum = (x & 0x7F * kEach) + (add & 0x7F * kEach);
      const uint64_t carry = (x & add) | ((x | add) & sum);
      // The product moves the lowest bit of byte j to bit 56 + j.
      const uint64_t within = ~carry >> 7 & kEach;
      bits |= (within * 0x0102040810204080) >> 56 << i;
    }
    return bits;
  }

  bool Takes(uint64_t leading, uint64_t left, uint64_t position) const {
    if (leading * left >= wanted_ << 8) return false;
    if ((leading + 1) * left <= wanted_ << 8) return true;
    return numbers_->WithLeading(leading, position) * left < wanted_ << 32;
  }

  PositionNumbers* numbers_;
  uint64_t left_, wanted_;
};

}  // namespace thimble::kernels
