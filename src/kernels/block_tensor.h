// SPDX-License-Identifier: Apache-2.0
//
// Test only: a tensor of bytes in blocks of 64, and what it must hold after
// values were written to it, by the scalar reference.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/rng.h"
#include "kernels/blocks.h"
#include "kernels/guard_page.h"
#include "kernels/storage_reference.h"
#include "kernels/tensor.h"

namespace thimble::kernels::testing {

inline uint32_t RandomOf(const RandomAddress& random, size_t element) {
  const RandomStream stream(random.seed, random.step, random.stream);
  const size_t group = element / kRandomGroup, at = element % kRandomGroup;
  return stream.Block(static_cast<uint32_t>(
      group * kRandomBlocks + at % kRandomBlocks))[at / kRandomBlocks];
}

inline float WideScale(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

// A tensor in blocks, each part ending where an unreadable page begins.
class BlockTensor {
 public:
  BlockTensor(BlockCoding coding, size_t n)
      : coding_(coding),
        n_(n),
        codes_(n),
        scales_((n + kBlockValues - 1) / kBlockValues) {}

  Tensor tensor() { return {codes_.data(), DType::kU8, scales_.data()}; }
  std::vector<float> Values() {
    std::vector<float> values(n_);
    for (size_t i = 0; i < n_; ++i) {
      values[i] = static_cast<float>(reference::BlockValue(
          coding_, codes_[i], WideScale(scales_[i / kBlockValues])));
    }
    return values;
  }
  // That it is what `values` are when they are written.
  void Expect(const std::vector<float>& values, const RandomAddress& random) {
    for (size_t first = 0; first < n_; first += kBlockValues) {
      uint32_t largest = 0;
      const size_t end = std::min(n_, first + kBlockValues);
      for (size_t i = first; i < end; ++i) {
        largest =
            std::max(largest, std::bit_cast<uint32_t>(std::abs(values[i])));
      }
      const uint16_t scale = BlockScale(coding_, largest).bits;
      ASSERT_EQ(scales_[first / kBlockValues], scale);
      for (size_t i = first; i < end; ++i) {
        ASSERT_EQ(codes_[i],
                  reference::BlockCode(coding_, values[i], WideScale(scale),
                                       RandomOf(random, i)))
            << i;
      }
    }
  }

 private:
  BlockCoding coding_;
  size_t n_;
  GuardPageBuffer<uint8_t> codes_;  // zeros
  GuardPageBuffer<uint16_t> scales_;
};

}  // namespace thimble::kernels::testing
