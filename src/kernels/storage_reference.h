// SPDX-License-Identifier: Apache-2.0
//
// The definition of the storage types' values and of rounding to them: scalar,
// by arithmetic on numbers rather than on bits.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "kernels/blocks.h"
#include "kernels/storage.h"

namespace thimble::kernels::reference {

// An IEEE-like type of 16 bits: `exponent_bits`, and the rest is fraction.
struct Format {
  int exponent_bits;
  int fraction_bits() const { return 15 - exponent_bits; }
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
};
inline constexpr Format kF16Format = {5};
inline constexpr Format kBF16Format = {8};

inline double ValueOf(Format format, uint16_t bits) {
  const int fraction_bits = format.fraction_bits();
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const int top = (1 << format.exponent_bits) - 1;
  const int exponent = (bits >> fraction_bits) & top;
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == top) {
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  }
  const int implicit = exponent == 0 ? 0 : 1 << fraction_bits;
  const int power = std::max(exponent, 1) - format.bias() - fraction_bits;
  return sign * std::ldexp(implicit + fraction, power);
}

// The distance between neighbouring values around x.
inline double UlpOf(Format format, double x) {
  int exponent = 0;
  std::frexp(x, &exponent);  // |x| in [2^(exponent-1), 2^exponent)
  const int least = 1 - format.bias();
  return std::ldexp(1.0,
                    std::max(exponent - 1, least) - format.fraction_bits());
}

// A multiple of the distance between values, or infinity past the largest.
inline double WithinRange(Format format, double rounded) {
  const int top = (1 << format.exponent_bits) - 2 - format.bias();
  if (std::abs(rounded) < std::ldexp(1.0, top + 1)) return rounded;
  return std::copysign(std::numeric_limits<double>::infinity(), rounded);
}

// x rounded to the nearest value, ties to even.
inline double Rounded(Format format, double x) {
  if (std::isnan(x) || std::isinf(x) || x == 0.0) return x;
  const double ulp = UlpOf(format, x);
  return WithinRange(format, std::nearbyint(x / ulp) * ulp);
}

// x rounded away from 0 with the share of the distance that lies below it, else
// towards 0, by 32 random bits.
inline double RoundedByChance(Format format, float x, uint32_t random) {
  if (std::isnan(x) || std::isinf(x) || x == 0.0f) return x;
  const double ulp = UlpOf(format, x);
  const double steps = std::abs(static_cast<double>(x)) / ulp;
  const double share = steps - std::floor(steps);
  const int cut = 23 - format.fraction_bits();  // bits of a normal f32
  bool up = share + std::ldexp(random >> (32 - cut), -cut) >= 1.0;
  if (format.bias() < 127 && std::abs(x) < std::ldexp(1.0, 1 - format.bias())) {
    up = share >= std::ldexp((random >> 8) | 1, -24);
  }
  const double rounded = (std::floor(steps) + (up ? 1.0 : 0.0)) * ulp;
  return WithinRange(format, std::copysign(rounded, x));
}

// A value of a block with this scale as a byte, and back.
inline uint8_t BlockCode(BlockCoding coding, float value, float scale,
                         uint32_t random) {
  const bool is_signed = coding == BlockCoding::kSigned;
  const float magnitude = is_signed ? std::abs(value) : std::sqrt(value);
  const float q = std::min(magnitude / scale, BlockTop(coding));
  const float below = std::floor(q);
  float share = q - below;
  if (!is_signed) share = share * (q + below) / (2 * below + 1);
  int code = static_cast<int>(below);
  if (share >= std::ldexp(static_cast<float>((random >> 8) | 1), -24)) ++code;
  if (is_signed) return static_cast<uint8_t>(value < 0 ? -code : code);
  return static_cast<uint8_t>(value > 0 ? std::max(code, 1) : code);
}

inline double BlockValue(BlockCoding coding, uint8_t code, double scale) {
  if (coding == BlockCoding::kSigned) {
    return static_cast<int8_t>(code) * scale;
  }
  return code * scale * (code * scale);
}

}  // namespace thimble::kernels::reference
