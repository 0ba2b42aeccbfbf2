// SPDX-License-Identifier: Apache-2.0
//
// What a byte of a block stands for, with the block's scale s (kernels/
// blocks-inl.h). Pure functions.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/random.h"
#include "kernels/storage.h"
#include "kernels/tensor.h"

namespace thimble::kernels {

inline constexpr size_t kBlockValues = ConstTensor::kBlock;
// So that a block draws one group of random numbers.
static_assert(kBlockValues == kRandomGroup);

enum class BlockCoding : uint8_t {
  kSigned,      // two's complement c in [-127, 127]: c * s
  kSquareRoot,  // c in [0, 255]: (c * s)², for values that are not negative
};

// The largest code.
constexpr float BlockTop(BlockCoding coding) {
  return coding == BlockCoding::kSigned ? 127.0f : 255.0f;
}

// The least scale with which the largest of a block, given by its bits, has a
// code. NaN where it is not finite: then all of the block is.
inline BF16 BlockScale(BlockCoding coding, uint32_t largest_bits) {
  const auto largest = std::bit_cast<float>(largest_bits);
  if (!std::isfinite(largest)) return {0x7FC0};
  const float root =
      coding == BlockCoding::kSigned ? largest : std::sqrt(largest);
  const auto bits = std::bit_cast<uint32_t>(root / BlockTop(coding));
  return {static_cast<uint16_t>((bits + 0xFFFFu) >> 16)};
}

}  // namespace thimble::kernels
