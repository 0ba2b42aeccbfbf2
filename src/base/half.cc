// SPDX-License-Identifier: Apache-2.0
#include "base/half.h"

#include <bit>
#include <cmath>
#include <cstdlib>

namespace thimble {
namespace {

constexpr uint32_t kSign = 0x80000000u;
constexpr uint32_t kF32Infinity = 0x7F800000u;

}  // namespace

uint16_t BF16Of(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const auto top = static_cast<uint16_t>(bits >> 16);
  // A NaN stays one: rounding could make an infinity of it.
  if ((bits & ~kSign) > kF32Infinity) return static_cast<uint16_t>(top | 0x40);
  return static_cast<uint16_t>((bits + 0x7FFFu + (top & 1u)) >> 16);
}

float BF16Value(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

uint16_t F16Of(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const auto sign = static_cast<uint16_t>((bits & kSign) >> 16);
  const uint32_t magnitude = bits & ~kSign;
  if (magnitude > kF32Infinity) {
    // Quiet, with the payload's upper bits, as the CPU's instruction does it.
    return static_cast<uint16_t>(sign | 0x7E00u | ((magnitude >> 13) & 0x3FFu));
  }
  // 65520 is half way between the largest f16 and the next power of two.
  if (std::abs(x) >= 65520.0f) return static_cast<uint16_t>(sign | 0x7C00u);
  if (magnitude < (113u << 23)) {
    // Below 2^-14 values are whole multiples of 2^-24. nearbyint rounds as the
    // processor is set: to nearest even.
    const float units = std::nearbyint(std::abs(x) * 0x1p24f);
    return static_cast<uint16_t>(sign | static_cast<uint32_t>(units));
  }
  const uint32_t odd = (magnitude >> 13) & 1u;
  const uint32_t rounded = magnitude - ((127u - 15u) << 23) + 0xFFFu + odd;
  return static_cast<uint16_t>(sign | (rounded >> 13));
}

float F16Value(uint16_t bits) {
  const float sign = (bits & 0x8000u) != 0 ? -1.0f : 1.0f;
  const int exponent = (bits >> 10) & 31;
  const uint32_t fraction = bits & 0x3FFu;
  if (exponent == 31) {
    const uint32_t nan = fraction == 0 ? 0 : 0x400000u | (fraction << 13);
    return std::copysign(std::bit_cast<float>(kF32Infinity | nan), sign);
  }
  const uint32_t implicit = exponent == 0 ? 0 : 0x400u;
  return sign * std::ldexp(static_cast<float>(implicit + fraction),
                           (exponent == 0 ? 1 : exponent) - 25);
}

}  // namespace thimble
