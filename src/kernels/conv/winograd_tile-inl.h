// SPDX-License-Identifier: Apache-2.0
//
// Strips of Winograd's convolution (winograd.h): their transformed input, the
// products, and the sums back in the order of pixels. Included once per SIMD
// target, after <hwy/highway.h>; hence no `#pragma once`.
#if defined(THIMBLE_KERNELS_CONV_WINOGRAD_TILE_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef THIMBLE_KERNELS_CONV_WINOGRAD_TILE_INL_H_
#undef THIMBLE_KERNELS_CONV_WINOGRAD_TILE_INL_H_
#else
#define THIMBLE_KERNELS_CONV_WINOGRAD_TILE_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "kernels/conv/grouped-inl.h"
#include "kernels/conv/rows-inl.h"
#include "kernels/conv/winograd.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3

constexpr int64_t kTiles = 16;  // of a strip
constexpr auto kLanes = static_cast<int64_t>(hn::MaxLanes(D()));
constexpr int64_t kTileVectors = kTiles / kLanes;

// ---- Input

// Slice i of B'x is row `plus` of a tile's four, and row `minus` taken from it
// (added, for slice 1).
struct SliceRows {
  int64_t plus;
  int64_t minus;
  float sign;
};
constexpr SliceRows kSliceRows[conv::kSlices] = {
    {0, 2, -1.0f}, {1, 2, 1.0f}, {2, 1, -1.0f}, {1, 3, -1.0f}};

// Vector v of row `k` of the strip's tiles: that row of every row of tiles, one
// after the other, 32 columns in all. Row 0 is the one above the first output.
template <typename T, Prologue kPrologue, int64_t kWidth>
HWY_INLINE V LoadTileRow(const T* HWY_RESTRICT plane, int64_t height,
                         int64_t first_row, int64_t k, int64_t v, V scale,
                         V shift) {
  const D d;
  if constexpr (kWidth >= kLanes) {
    const int64_t row = first_row + k - 1 + v * kLanes / kWidth * 2;
    if (row < 0 || row >= height) return hn::Zero(d);
    const T* from = plane + row * kWidth + v * kLanes % kWidth;
    return Activate<kPrologue>(d, LoadAs(d, from), scale, shift);
  } else {
    const hn::Half<D> half;
    const auto load = [&](int64_t row) HWY_ATTR {
      if (row < 0 || row >= height) return hn::Zero(half);
      return Activate<kPrologue>(half, LoadAs(half, plane + row * kWidth),
                                 hn::LowerHalf(half, scale),
                                 hn::LowerHalf(half, shift));
    };
    const int64_t row = first_row + k - 1 + v * 4;
    return hn::Combine(d, load(row + 2), load(row));
  }
}

// One channel of slice `rows`: [column of the slice][tile].
template <typename T, Prologue kPrologue, int64_t kWidth>
HWY_INLINE void TransformChannel(const T* HWY_RESTRICT plane, int64_t height,
                                 int64_t first_row, const SliceRows& rows,
                                 V scale, V shift, const Mover& mover,
                                 float* HWY_RESTRICT to) {
  const D d;
  const V sign = hn::Set(d, rows.sign);
  V even[kTileVectors], odd[kTileVectors];
  THIMBLE_UNROLL
  for (int64_t v = 0; v < kTileVectors; ++v) {
    V x[2];
    THIMBLE_UNROLL
    for (int64_t i = 0; i < 2; ++i) {
      const V plus = LoadTileRow<T, kPrologue, kWidth>(
          plane, height, first_row, rows.plus, 2 * v + i, scale, shift);
      const V minus = LoadTileRow<T, kPrologue, kWidth>(
          plane, height, first_row, rows.minus, 2 * v + i, scale, shift);
      x[i] = hn::MulAdd(minus, sign, plus);
    }
    even[v] = hn::ConcatEven(d, x[1], x[0]);
    odd[v] = hn::ConcatOdd(d, x[1], x[0]);
  }
  // A tile's first column is its left neighbour's last but one, its last the
  // right neighbour's second.
  constexpr int64_t kRow = kWidth / 2 > kLanes ? kWidth / 2 / kLanes : 1;
  V before[kTileVectors], after[kTileVectors];
  THIMBLE_UNROLL
  for (int64_t v = 0; v < kTileVectors; ++v) {
    before[v] = odd[v];
    after[v] = even[v];
  }
  MoveSums<1, kTileVectors, kRow>(mover, before);
  MoveSums<-1, kTileVectors, kRow>(mover, after);
  THIMBLE_UNROLL
  for (int64_t v = 0; v < kTileVectors; ++v) {
    float* at = to + v * kLanes;
    hn::Store(hn::Sub(before[v], odd[v]), d, at);
    hn::Store(hn::Add(even[v], odd[v]), d, at + kTiles);
    hn::Store(hn::Sub(odd[v], even[v]), d, at + 2 * kTiles);
    hn::Store(hn::Sub(even[v], after[v]), d, at + 3 * kTiles);
  }
}

// Channels [channel, channel + channels) of an image, whose first plane is at
// element `offset`.
template <typename T, Prologue kPrologue, int64_t kWidth>
void TransformChannels(const conv::StripGrid& grid, const Conv2dInput& input,
                       int64_t offset, int64_t first_row, int64_t slice,
                       int64_t channel, int64_t channels, float* to) {
  const D d;
  const Mover mover(kWidth / 2);
  const int64_t plane = grid.height * kWidth;
  const T* from = input.x.As<T>() + offset + channel * plane;
  for (int64_t c = 0; c < channels; ++c) {
    const V scale = Coefficient<kPrologue>(d, input.scale, channel + c);
    const V shift = Coefficient<kPrologue>(d, input.shift, channel + c);
    TransformChannel<T, kPrologue, kWidth>(
        from + c * plane, grid.height, first_row, kSliceRows[slice], scale,
        shift, mover, to + c * conv::kStripPixels);
  }
}

// Slice `slice` of strip `strip` of the batch: [channel][column][tile].
void TransformStrip(const conv::StripGrid& grid, const Conv2dInput& input,
                    int64_t strip, int64_t slice, int64_t channel,
                    int64_t channels, float* to) {
  const int64_t image = strip / grid.image_strips();
  const int64_t offset = image * grid.channels * grid.height * grid.width;
  const int64_t row =
      strip % grid.image_strips() * (conv::kStripPixels / grid.width);
  WithInput(input, [&](auto type, auto prologue) HWY_ATTR {
    using T = decltype(type);
    constexpr Prologue kPrologue = decltype(prologue)::value;
    const auto run = grid.width == 32   ? &TransformChannels<T, kPrologue, 32>
                     : grid.width == 16 ? &TransformChannels<T, kPrologue, 16>
                                        : &TransformChannels<T, kPrologue, 8>;
    run(grid, input, offset, row, slice, channel, channels, to);
  });
}

// ---- Products

// Adds v to row 0 and 1 of sums, as far as slice `slice` has a share in them;
// sets what it is the first to have a share in.
HWY_INLINE void AddSlice(V v, int64_t slice, bool first, float* row0,
                         float* row1) {
  const D d;
  if (slice == 0) {
    hn::Store(first ? v : hn::Add(hn::Load(d, row0), v), d, row0);
    return;
  }
  if (slice < 3) hn::Store(hn::Add(hn::Load(d, row0), v), d, row0);
  if (slice == 1) {
    hn::Store(first ? v : hn::Add(hn::Load(d, row1), v), d, row1);
  } else {
    hn::Store(hn::Sub(hn::Load(d, row1), v), d, row1);
  }
}

// Four outputs: sums[output][row][column][tile]. All four columns of a slice
// are in registers together where they are enough.
#if HWY_TARGET == HWY_AVX3
HWY_INLINE void MultiplyFour(const float* HWY_RESTRICT tile,
                             const float* HWY_RESTRICT weights,
                             int64_t channels, int64_t slice, bool first,
                             float* HWY_RESTRICT sums) {
  const D d;
  V acc[4][4];  // [column][output]
  THIMBLE_UNROLL
  for (int64_t i = 0; i < 16; ++i) acc[i / 4][i % 4] = hn::Zero(d);
  for (int64_t c = 0; c < channels; ++c) {
    THIMBLE_UNROLL
    for (int64_t j = 0; j < 4; ++j) {
      const V x = hn::Load(d, tile + j * kTiles);
      THIMBLE_UNROLL
      for (int64_t o = 0; o < 4; ++o) {
        acc[j][o] = hn::MulAdd(x, hn::Set(d, weights[4 * j + o]), acc[j][o]);
      }
    }
    tile += conv::kStripPixels;
    weights += 16;
  }
  THIMBLE_UNROLL
  for (int64_t o = 0; o < 4; ++o) {
    float* at = sums + o * conv::kStripPixels;
    const V left = hn::Add(hn::Add(acc[0][o], acc[1][o]), acc[2][o]);
    const V right = hn::Sub(hn::Sub(acc[1][o], acc[2][o]), acc[3][o]);
    AddSlice(left, slice, first, at, at + 2 * kTiles);
    AddSlice(right, slice, first, at + kTiles, at + 3 * kTiles);
  }
}
#else
HWY_INLINE void MultiplyFour(const float* HWY_RESTRICT tile,
                             const float* HWY_RESTRICT weights,
                             int64_t channels, int64_t slice, bool first,
                             float* HWY_RESTRICT sums) {
  const D d;
  for (int64_t j = 0; j < 4; ++j) {
    V acc[4][kTileVectors];
    THIMBLE_UNROLL
    for (int64_t o = 0; o < 4; ++o) {
      THIMBLE_UNROLL
      for (int64_t v = 0; v < kTileVectors; ++v) acc[o][v] = hn::Zero(d);
    }
    const float* x = tile + j * kTiles;
    const float* w = weights + 4 * j;
    for (int64_t c = 0; c < channels; ++c) {
      THIMBLE_UNROLL
      for (int64_t o = 0; o < 4; ++o) {
        const V weight = hn::Set(d, w[o]);
        THIMBLE_UNROLL
        for (int64_t v = 0; v < kTileVectors; ++v) {
          acc[o][v] =
              hn::MulAdd(hn::Load(d, x + v * kLanes), weight, acc[o][v]);
        }
      }
      x += conv::kStripPixels;
      w += 16;
    }
    THIMBLE_UNROLL
    for (int64_t o = 0; o < 4; ++o) {
      THIMBLE_UNROLL
      for (int64_t v = 0; v < kTileVectors; ++v) {
        float* at = sums + o * conv::kStripPixels + v * kLanes;
        if (j < 3) {
          AddSlice(acc[o][v], slice, first && j == 0, at, at + 2 * kTiles);
        }
        if (j > 0) {
          const V share = j == 1 ? acc[o][v] : hn::Neg(acc[o][v]);
          AddSlice(share, slice, first && j == 1, at + kTiles, at + 3 * kTiles);
        }
      }
    }
  }
}
#endif

// ---- Output

// One output's sums in the order of pixels.
HWY_INLINE void OrderPixels(int64_t width, const float* HWY_RESTRICT sums,
                            float* HWY_RESTRICT to) {
  const auto order = [&](auto d, int64_t n) HWY_ATTR {
    // n tiles of one row of tiles at a time, or of half a row of 16.
    for (int64_t t = 0; t < kTiles; t += n) {
      const int64_t tile_row = 2 * t / width;
      float* at = to + 2 * tile_row * width + 2 * t % width;
      for (int64_t a = 0; a < 2; ++a) {
        const float* from = sums + 2 * a * kTiles + t;
        hn::StoreInterleaved2(hn::LoadU(d, from), hn::LoadU(d, from + kTiles),
                              d, at + a * width);
      }
    }
  };
  if (width == 8) {
    order(hn::FixedTag<float, 4>(), 4);
  } else {
    order(hn::FixedTag<float, 8>(), 8);
  }
}

#endif  // 8 lanes

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
