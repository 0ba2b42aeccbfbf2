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

// x rounded to the nearest value, ties to even.
inline double Rounded(Format format, double x) {
  if (std::isnan(x) || std::isinf(x) || x == 0.0) return x;
  const double ulp = UlpOf(format, x);
  const double rounded = std::nearbyint(x / ulp) * ulp;
  const int top = (1 << format.exponent_bits) - 2 - format.bias();
  if (std::abs(rounded) < std::ldexp(1.0, top + 1)) return rounded;
  return std::copysign(std::numeric_limits<double>::infinity(), x);
}

}  // namespace thimble::kernels::reference
