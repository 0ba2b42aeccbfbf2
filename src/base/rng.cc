// SPDX-License-Identifier: Apache-2.0
#include "base/rng.h"

#include <bit>
#include <cmath>

#include "base/check.h"

namespace thimble {
namespace {

constexpr double kPi = 3.14159265358979323846;
constexpr double kLn2 = 0.69314718055994530942;

// Natural logarithm of a normal positive x, to about 1e-15 relative: with
// x = m * 2^e and m in [sqrt(1/2), sqrt(2)), ln m = 2 atanh((m-1)/(m+1)), whose
// argument is at most 0.172, so the series ends below 1e-17 after eleven terms.
double Log(double x) {
  constexpr uint64_t kMantissa = (uint64_t{1} << 52) - 1;
  const auto bits = std::bit_cast<uint64_t>(x);
  int exponent = static_cast<int>(bits >> 52) - 1023;
  auto m = std::bit_cast<double>((bits & kMantissa) | (uint64_t{1023} << 52));
  if (m > 1.41421356237309504880) {
    m *= 0.5;
    ++exponent;
  }
  const double s = (m - 1.0) / (m + 1.0);
  const double s2 = s * s;
  double sum = 0.0;
  for (int k = 21; k >= 1; k -= 2) sum = sum * s2 + 1.0 / k;
  return 2.0 * s * sum + exponent * kLn2;
}

struct SinCos {
  double sin;
  double cos;
};

// For 0 <= x <= pi/2, by Taylor: x^22/22! is below 2e-17 there.
SinCos SinCosFirstQuadrant(double x) {
  const double x2 = x * x;
  double s = 1.0;
  double c = 1.0;
  for (int k = 20; k >= 2; k -= 2) {
    s = 1.0 - s * x2 / (k * (k + 1));
    c = 1.0 - c * x2 / (k * (k - 1));
  }
  return {s * x, c};
}

// The two top bits choose the quadrant, the others the angle within it.
SinCos SinCosFromBits(uint32_t bits) {
  const uint32_t within = bits & 0x3FFFFFFF;
  const SinCos q = SinCosFirstQuadrant((within + 0.5) * (kPi / 2) * 0x1p-30);
  switch (bits >> 30) {
    case 0:
      return q;
    case 1:
      return {q.cos, -q.sin};
    case 2:
      return {-q.sin, -q.cos};
    default:
      return {-q.cos, q.sin};
  }
}

uint32_t BlockOf(uint64_t element) {
  TH_CHECK(element < RandomStream::kMaxElements);
  return static_cast<uint32_t>(element / 4);
}

}  // namespace

std::array<float, 2> NormalPairFromBits(uint32_t a, uint32_t b) {
  // The half keeps the logarithm's argument inside (0, 1).
  const double radius = std::sqrt(-2.0 * Log((a + 0.5) * 0x1p-32));
  const SinCos angle = SinCosFromBits(b);
  return {static_cast<float>(radius * angle.cos),
          static_cast<float>(radius * angle.sin)};
}

uint32_t RandomStream::Bits(uint64_t element) const {
  return Block(BlockOf(element))[element % 4];
}

float RandomStream::Uniform(uint64_t element) const {
  return UniformFromBits(Bits(element));
}

float RandomStream::Normal(uint64_t element) const {
  const PhiloxBlock bits = Block(BlockOf(element));
  const size_t first = element % 4 / 2 * 2;
  return NormalPairFromBits(bits[first], bits[first + 1])[element % 2];
}

}  // namespace thimble
