// SPDX-License-Identifier: Apache-2.0
//
// The kernels of winograd_kernels.h for what becomes of sums. The left pixels
// of a strip's tiles are a vector, and so are the right ones: what a tensor in
// bf16 holds there are the lower and the upper halves of its words. Included
// once per build, by way of foreach_build.h; hence no `#pragma once`.
#if defined(THIMBLE_KERNELS_DOT_WINOGRAD_ROWS_INL_H_) == \
    defined(THIMBLE_DOT_TOGGLE)
#ifdef THIMBLE_KERNELS_DOT_WINOGRAD_ROWS_INL_H_
#undef THIMBLE_KERNELS_DOT_WINOGRAD_ROWS_INL_H_
#else
#define THIMBLE_KERNELS_DOT_WINOGRAD_ROWS_INL_H_
#endif

#include <cstdint>
#include <cstring>

#include "kernels/dot/lanes-inl.h"
#include "kernels/dot/winograd_kernels.h"

THIMBLE_DOT_BEGIN
namespace {

// Row `a` of the tiles of the strip that begins at `strip`: row a of every row
// of tiles, which are two rows of pixels apart.
THIMBLE_DOT_INLINE Words LoadPixels(int64_t width, const uint16_t* strip,
                                    int64_t a) {
  const uint16_t* at = strip + a * width;
  if (width == 32) return LoadWords(at);
  if (width == 16) return LoadHalves(at, at + 32);
  return LoadQuarters(at, at + 16, at + 32, at + 48);
}
THIMBLE_DOT_INLINE void StorePixels(int64_t width, Words v, int64_t a,
                                    uint16_t* strip) {
  uint16_t* at = strip + a * width;
  if (width == 32) {
    Store(v, at);
  } else if (width == 16) {
    StoreHalves(v, at, at + 32);
  } else {
    StoreQuarters(v, at, at + 16, at + 32, at + 48);
  }
}

// The sum of all lanes of both, in an order that is the same in all builds.
THIMBLE_DOT_INLINE double SumOfLanes(Floats a, Floats b) {
  float lanes[kLanes];
  Store(Add(a, b), lanes);
  double sums[4] = {};
  for (int64_t i = 0; i < kLanes; ++i) sums[i % 4] += lanes[i];
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

constexpr int64_t kPixels = 4 * kLanes;  // of a strip

double WriteSums(const dot::SumRow& row, const uint16_t* residual, bool keep,
                 uint16_t* to) {
  Floats left_sum = ZeroFloats(), right_sum = left_sum;
  for (int64_t i = 0; i < 2 * row.strips; ++i) {
    const int64_t strip = i / 2 * kPixels, a = i % 2;
    float* sums = row.sums + i / 2 * row.stride + a * 2 * kLanes;
    Floats left = LoadFloats(sums), right = LoadFloats(sums + kLanes);
    if (residual != nullptr) {
      const Words r = LoadPixels(row.width, residual + strip, a);
      left = Add(left, Even(r));
      right = Add(right, Odd(r));
    }
    const Words pixels = Zip(left, right);
    StorePixels(row.width, pixels, a, to + strip);
    if (!keep) continue;
    left = Even(pixels);
    right = Odd(pixels);
    Store(left, sums);
    Store(right, sums + kLanes);
    left_sum = Add(left_sum, left);
    right_sum = Add(right_sum, right);
  }
  return keep ? SumOfLanes(left_sum, right_sum) : 0.0;
}

dot::RowSums SumDeviations(const dot::SumRow& row, float center) {
  const Floats c = SetFloats(center);
  Floats sum[2] = {ZeroFloats(), ZeroFloats()};
  Floats squares[2] = {ZeroFloats(), ZeroFloats()};
  for (int64_t s = 0; s < row.strips; ++s) {
    const float* sums = row.sums + s * row.stride;
    THIMBLE_DOT_UNROLL
    for (int64_t v = 0; v < 4; ++v) {
      const Floats off = Sub(LoadFloats(sums + v * kLanes), c);
      sum[v % 2] = Add(sum[v % 2], off);
      squares[v % 2] = FusedMulAdd(off, off, squares[v % 2]);
    }
  }
  return {SumOfLanes(sum[0], sum[1]), SumOfLanes(squares[0], squares[1])};
}

// relu's gradient, rounded.
struct MaskVectors {
  explicit MaskVectors(const dot::MaskFactors& f)
      : scale(SetFloats(f.scale)),
        shift(SetFloats(f.shift)),
        mean(SetFloats(f.mean)),
        inv_std(SetFloats(f.inv_std)) {}
  __attribute__((always_inline)) inline Floats Masked(Floats x,
                                                      Floats gradient) const {
    return IfPositive(FusedMulAdd(x, scale, shift), gradient);
  }
  __attribute__((always_inline)) inline Floats Normal(Floats x) const {
    return Mul(Sub(x, mean), inv_std);
  }
  Floats scale, shift, mean, inv_std;
};

dot::RowSums WriteMasked(const dot::SumRow& row, const uint16_t* x,
                         const dot::MaskFactors& factors, uint16_t* to) {
  const MaskVectors mask(factors);
  Floats sum[2] = {ZeroFloats(), ZeroFloats()};
  Floats products[2] = {ZeroFloats(), ZeroFloats()};
  for (int64_t i = 0; i < 2 * row.strips; ++i) {
    const int64_t strip = i / 2 * kPixels, a = i % 2;
    const float* sums = row.sums + i / 2 * row.stride + a * 2 * kLanes;
    const Words at = LoadPixels(row.width, x + strip, a);
    const Words pixels = Zip(mask.Masked(Even(at), LoadFloats(sums)),
                             mask.Masked(Odd(at), LoadFloats(sums + kLanes)));
    if (to != nullptr) StorePixels(row.width, pixels, a, to + strip);
    const Floats v[2] = {Even(pixels), Odd(pixels)};
    sum[0] = Add(sum[0], v[0]);
    sum[1] = Add(sum[1], v[1]);
    products[0] = FusedMulAdd(v[0], mask.Normal(Even(at)), products[0]);
    products[1] = FusedMulAdd(v[1], mask.Normal(Odd(at)), products[1]);
  }
  return {SumOfLanes(sum[0], sum[1]), SumOfLanes(products[0], products[1])};
}

void OrderPixels(const dot::SumRow& row, float* to) {
  for (int64_t i = 0; i < 2 * row.strips; ++i) {
    const float* sums = row.sums + i / 2 * row.stride + i % 2 * 2 * kLanes;
    const Floats left = LoadFloats(sums), right = LoadFloats(sums + kLanes);
    float* at = to + i / 2 * kPixels + i % 2 * row.width;
    if (row.width == 32) {
      StoreInterleaved(left, right, at, at + 16);
    } else if (row.width == 16) {
      StoreInterleaved(left, right, at, at + 32);
    } else {
      float line[2 * kLanes];
      StoreInterleaved(left, right, line, line + 16);
      for (int64_t k = 0; k < 4; ++k) {
        std::memcpy(at + 16 * k, line + 8 * k, 8 * sizeof(float));
      }
    }
  }
}

}  // namespace
THIMBLE_DOT_END

#endif  // per-build include guard
