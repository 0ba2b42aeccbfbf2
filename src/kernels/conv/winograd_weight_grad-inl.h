// SPDX-License-Identifier: Apache-2.0
//
// The gradient of the weights by Winograd's products (winograd.h). Included
// once per SIMD target, after <hwy/highway.h>; hence no `#pragma once`.
#if defined(THIMBLE_KERNELS_CONV_WINOGRAD_WEIGHT_GRAD_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef THIMBLE_KERNELS_CONV_WINOGRAD_WEIGHT_GRAD_INL_H_
#undef THIMBLE_KERNELS_CONV_WINOGRAD_WEIGHT_GRAD_INL_H_
#else
#define THIMBLE_KERNELS_CONV_WINOGRAD_WEIGHT_GRAD_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "kernels/conv/grad_weight-inl.h"
#include "kernels/conv/winograd_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3

// Channels of a register tile, beside two vectors of outputs.
#if HWY_TARGET == HWY_AVX2
constexpr int64_t kTileChannels = 4;
#else
constexpr int64_t kTileChannels = 8;
#endif

// One unit of work, and the strips in scratch.
struct WinogradWeightWork {
  float* sums;   // [channel][slice][column][output]
  float* grad;   // [strip][pixel][output]
  float* slice;  // [strip][row of tiles][column of pixels][output]
  float* tile;   // [strip][channel][column][tile]
  float* piece;
  int64_t first_output;
  int64_t outputs;
  int64_t first_channel;
  int64_t channels;
  int64_t strips;
};

// Rows of A grad_y for one slice: pixels of tile row t lie at
// from + strip * strip_floats + t * row_floats, two to a tile.
struct GradRows {
  const float* from;
  int64_t strip_floats;
  int64_t row_floats;
};

// Row `slice` of A grad_y. A's last row is -1, for which 1 stands here; the
// sign comes back in StoreSums.
GradRows FindGradRows(const conv::WinogradWeightPass& pass,
                      const WinogradWeightWork& work, int64_t slice) {
  const D d;
  const int64_t row = pass.grid.width * pass.block;
  const int64_t strip = conv::kStripPixels * pass.block;
  if (slice == 0) return {work.grad, strip, 2 * row};
  if (slice == 3) return {work.grad + row, strip, 2 * row};
  const int64_t rows = work.strips * strip / (2 * row);
  for (int64_t r = 0; r < rows; ++r) {
    const float* HWY_RESTRICT upper = work.grad + 2 * r * row;
    float* HWY_RESTRICT to = work.slice + r * row;
    for (int64_t i = 0; i < row; i += kLanes) {
      const V a = hn::Load(d, upper + i);
      const V b = hn::Load(d, upper + row + i);
      hn::Store(slice == 1 ? hn::Add(a, b) : hn::Sub(a, b), d, to + i);
    }
  }
  return {work.slice, strip / 2, row};
}

// kV vectors of outputs and kTileChannels channels: adds to sums what column
// kColumn of the slice gives over all strips in scratch.
template <int64_t kColumn, int64_t kV>
void AddProducts(const conv::WinogradWeightPass& pass,
                 const WinogradWeightWork& work, const GradRows& grad,
                 const float* HWY_RESTRICT tile, float* HWY_RESTRICT sums) {
  const D d;
  const int64_t row_tiles = pass.grid.width / 2;
  const int64_t pixel = pass.block;
  V acc[kTileChannels][kV];
  THIMBLE_UNROLL
  for (int64_t c = 0; c < kTileChannels; ++c) {
    THIMBLE_UNROLL
    for (int64_t v = 0; v < kV; ++v) acc[c][v] = hn::Zero(d);
  }
  for (int64_t s = 0; s < work.strips; ++s) {
    const float* x = tile + s * work.channels * conv::kStripPixels;
    for (int64_t t = 0; t < kTiles; t += row_tiles) {
      const float* g =
          grad.from + s * grad.strip_floats + t / row_tiles * grad.row_floats;
      for (int64_t i = 0; i < row_tiles; ++i, g += 2 * pixel) {
        V y[kV];
        THIMBLE_UNROLL
        for (int64_t v = 0; v < kV; ++v) {
          const float* at = g + v * kLanes;
          if constexpr (kColumn == 0) y[v] = hn::Load(d, at);
          if constexpr (kColumn == 1) {
            y[v] = hn::Add(hn::Load(d, at), hn::Load(d, at + pixel));
          }
          if constexpr (kColumn == 2) {
            y[v] = hn::Sub(hn::Load(d, at), hn::Load(d, at + pixel));
          }
          if constexpr (kColumn == 3) y[v] = hn::Load(d, at + pixel);
        }
        THIMBLE_UNROLL
        for (int64_t c = 0; c < kTileChannels; ++c) {
          const V factor = hn::Set(d, x[c * conv::kStripPixels + t + i]);
          THIMBLE_UNROLL
          for (int64_t v = 0; v < kV; ++v) {
            acc[c][v] = hn::MulAdd(factor, y[v], acc[c][v]);
          }
        }
      }
    }
  }
  THIMBLE_UNROLL
  for (int64_t c = 0; c < kTileChannels; ++c) {
    THIMBLE_UNROLL
    for (int64_t v = 0; v < kV; ++v) {
      float* to = sums + c * 16 * pass.block + v * kLanes;
      hn::Store(hn::Add(hn::Load(d, to), acc[c][v]), d, to);
    }
  }
}

template <int64_t kV>
void AddSliceProducts(const conv::WinogradWeightPass& pass,
                      const WinogradWeightWork& work, GradRows grad,
                      int64_t slice) {
  for (int64_t o = 0; o < pass.block; o += kV * kLanes) {
    for (int64_t c = 0; c < work.channels; c += kTileChannels) {
      const float* tile = work.tile + c * conv::kStripPixels;
      float* sums = work.sums + (c * 16 + 4 * slice) * pass.block + o;
      AddProducts<0, kV>(pass, work, grad, tile, sums);
      AddProducts<1, kV>(pass, work, grad, tile + kTiles, sums + pass.block);
      AddProducts<2, kV>(pass, work, grad, tile + 2 * kTiles,
                         sums + 2 * pass.block);
      AddProducts<3, kV>(pass, work, grad, tile + 3 * kTiles,
                         sums + 3 * pass.block);
    }
    grad.from += kV * kLanes;
  }
}

// [channel][slice][column][output] to [channel][tap][output], in place: G' s G.
void FoldProducts(const conv::WinogradWeightPass& pass,
                  const WinogradWeightWork& work) {
  const D d;
  const V half = hn::Set(d, 0.5f);
  const auto fold = [&](const V* s, V* to) HWY_ATTR {
    const V sum = hn::Mul(hn::Add(s[1], s[2]), half);
    to[0] = hn::Add(s[0], sum);
    to[1] = hn::Mul(hn::Sub(s[1], s[2]), half);
    to[2] = hn::Sub(sum, s[3]);
  };
  for (int64_t c = 0; c < work.channels; ++c) {
    for (int64_t o = 0; o < pass.block; o += kLanes) {
      const float* from = work.sums + c * 16 * pass.block + o;
      V rows[4][3];
      THIMBLE_UNROLL
      for (int64_t i = 0; i < 4; ++i) {
        V s[4];
        THIMBLE_UNROLL
        for (int64_t j = 0; j < 4; ++j) {
          s[j] = hn::Load(d, from + (4 * i + j) * pass.block);
        }
        fold(s, rows[i]);
      }
      THIMBLE_UNROLL
      for (int64_t kw = 0; kw < 3; ++kw) {
        const V s[4] = {rows[0][kw], rows[1][kw], rows[2][kw], rows[3][kw]};
        V taps[3];
        fold(s, taps);
        THIMBLE_UNROLL
        for (int64_t kh = 0; kh < 3; ++kh) {
          hn::Store(taps[kh], d, work.piece + (3 * kh + kw) * pass.block + o);
        }
      }
    }
    // What is read next lies past what is written here.
    float* to = work.sums + c * 9 * pass.block;
    for (int64_t i = 0; i < 9 * pass.block; i += kLanes) {
      hn::Store(hn::Load(d, work.piece + i), d, to + i);
    }
  }
}

// Adds what strips [strip, strip + work.strips) give.
void AddStrips(const conv::WinogradWeightPass& pass,
               const WinogradWeightWork& work, const Conv2dInput& x,
               const ConstTensor& grad_y, int64_t strip) {
  const int64_t image_strips = pass.grid.image_strips();
  for (int64_t s = 0; s < work.strips; ++s) {
    const int64_t image = (strip + s) / image_strips;
    TransposeGrad(grad_y, image * pass.shape.out_channels + work.first_output,
                  work.outputs, image_strips * conv::kStripPixels,
                  (strip + s) % image_strips * conv::kStripPixels,
                  conv::kStripPixels, pass.block, work.piece,
                  work.grad + s * conv::kStripPixels * pass.block);
  }
  for (int64_t slice = 0; slice < conv::kSlices; ++slice) {
    for (int64_t s = 0; s < work.strips; ++s) {
      TransformStrip(pass.grid, x, strip + s, slice, work.first_channel,
                     work.channels,
                     work.tile + s * work.channels * conv::kStripPixels);
    }
    const GradRows grad = FindGradRows(pass, work, slice);
    if (pass.block == kLanes) {
      AddSliceProducts<1>(pass, work, grad, slice);
    } else {
      AddSliceProducts<2>(pass, work, grad, slice);
    }
  }
}

void SumWinogradUnit(const conv::WinogradWeightPass& pass,
                     WinogradWeightWork& work, int64_t images,
                     const Conv2dInput& x, const ConstTensor& grad_y,
                     const conv::WeightUnit& unit) {
  ZeroRow(work.channels * 16 * pass.block, work.sums);
  const int64_t strips = images * pass.grid.image_strips();
  for (int64_t s = 0; s < strips; s += pass.kStrips) {
    work.strips = HWY_MIN(pass.kStrips, strips - s);
    AddStrips(pass, work, x, grad_y, s);
  }
  FoldProducts(pass, work);
  StoreWeights(unit.to, work.sums, pass.block, work.outputs, work.channels * 9,
               unit.at, unit.stride);
}

#endif  // 8 lanes

}  // namespace

// False where this target has no such way.
bool RunWinogradWeightGrad(const conv::WinogradWeightPass& pass, int64_t images,
                           const Conv2dInput& x, const ConstTensor& grad_y,
                           const Conv2dGradWeightTarget& grad_w,
                           const KernelContext& context) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  conv::ForWeightUnits(pass.shape, {pass.block, pass.chunk, pass.Floats()},
                       grad_w, context,
                       [&](const conv::WeightUnit& unit, float* scratch) {
                         WinogradWeightWork work;
                         work.sums = scratch;
                         work.grad = work.sums + pass.sum_floats();
                         work.slice = work.grad + pass.grad_floats();
                         work.tile = work.slice + pass.slice_floats();
                         work.piece = work.tile + pass.tile_floats();
                         work.first_output = unit.first_output;
                         work.outputs = unit.outputs;
                         work.first_channel = unit.first_channel;
                         work.channels = unit.channels;
                         SumWinogradUnit(pass, work, images, x, grad_y, unit);
                       });
  return true;
#else
  (void)pass, (void)images, (void)x, (void)grad_y, (void)grad_w, (void)context;
  return false;
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
