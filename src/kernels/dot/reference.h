// SPDX-License-Identifier: Apache-2.0
//
// Dot products and rounding of bf16, by scalars: what every build of the
// kernels must give, to the bit.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace thimble::kernels::dot {

inline float Bf16ToFloat(uint16_t v) {
  const uint32_t bits = static_cast<uint32_t>(v) << 16;
  float f;
  std::memcpy(&f, &bits, sizeof f);
  return f;
}

// Denormals as zeros of their sign.
inline float Flushed(float v) {
  return std::fpclassify(v) == FP_SUBNORMAL ? std::copysign(0.0f, v) : v;
}

// a * b + c, rounded once.
inline float FusedMulAdd(float a, float b, float c) {
  return Flushed(std::fma(Flushed(a), Flushed(b), Flushed(c)));
}

// Pairs of bf16 in one word each, the first in the low half.
inline float DotOf(float sum, uint32_t x, uint32_t w) {
  const float upper =
      FusedMulAdd(Bf16ToFloat(static_cast<uint16_t>(x >> 16)),
                  Bf16ToFloat(static_cast<uint16_t>(w >> 16)), sum);
  return FusedMulAdd(Bf16ToFloat(static_cast<uint16_t>(x & 0xFFFFu)),
                     Bf16ToFloat(static_cast<uint16_t>(w & 0xFFFFu)), upper);
}

// To nearest even; a denormal is a zero, a NaN is quiet.
inline uint16_t Bf16Of(float v) {
  v = Flushed(v);
  uint32_t bits;
  std::memcpy(&bits, &v, sizeof bits);
  if (std::isnan(v)) return static_cast<uint16_t>(bits >> 16 | 0x40u);
  return static_cast<uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

}  // namespace thimble::kernels::dot
