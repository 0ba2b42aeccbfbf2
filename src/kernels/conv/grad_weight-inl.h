// SPDX-License-Identifier: Apache-2.0
//
// The gradient of the convolution's weights. Lanes run over output channels, so
// that there is nothing to reduce over lanes and rows need no padding.
// Included once per SIMD target, after <hwy/highway.h>; hence no `#pragma
// once`.
#if defined(THIMBLE_KERNELS_CONV_GRAD_WEIGHT_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef THIMBLE_KERNELS_CONV_GRAD_WEIGHT_INL_H_
#undef THIMBLE_KERNELS_CONV_GRAD_WEIGHT_INL_H_
#else
#define THIMBLE_KERNELS_CONV_GRAD_WEIGHT_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "kernels/conv/pass.h"
#include "kernels/conv/tile-inl.h"
#include "kernels/conv/weight_units.h"
#include "kernels/simd-inl.h"
#include "kernels/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

// Taps of a register tile with kV vectors of outputs; divides conv::kTapGroup.
#if HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_AVX2
template <int64_t kV>
constexpr int64_t kTileTaps = conv::kTapGroup / kV;
#else
template <int64_t kV>
constexpr int64_t kTileTaps = conv::kTapGroup;
#endif

// One unit of work: outputs [first_output, first_output + outputs), as one or
// two vectors, and channels [first_channel, first_channel + channels).
struct WeightWork {
  float* tile;
  float* grad;  // [position][outputs], of the rows that the tile serves
  float* sums;  // [channel, tap][outputs]
  // From the tile's start to what each (channel, tap) reads at position 0.
  int32_t* offsets;
  int64_t first_output;
  int64_t outputs;
  int64_t vectors;
  int64_t first_channel;
  int64_t channels;
  int64_t width;  // vectors * lanes
  float* row;
  float* block;  // grad_y before it is transposed, where it is not f32
};

// Adds to the sums of kTileTaps taps what the `rows` rows in scratch give. `x`
// points to what each tap reads at the first position.
template <int64_t kV>
void AddTapTile(const conv::Tile& tile, int64_t rows,
                const float* const* taps_x, const float* HWY_RESTRICT grad,
                float* HWY_RESTRICT sums) {
  constexpr int64_t kTaps = kTileTaps<kV>;
  const D d;
  const int64_t lanes = LaneCount();
  const float* x[kTaps];
  V acc[kTaps][kV];
  for (int64_t t = 0; t < kTaps; ++t) {
    x[t] = taps_x[t];
    for (int64_t v = 0; v < kV; ++v) acc[t][v] = hn::Zero(d);
  }
  const auto add = [&](int64_t position) HWY_ATTR {
    V g[kV];
    for (int64_t v = 0; v < kV; ++v) g[v] = hn::LoadU(d, grad + v * lanes);
    for (int64_t t = 0; t < kTaps; ++t) {
      const V factor = hn::Set(d, x[t][position]);
      for (int64_t v = 0; v < kV; ++v) {
        acc[t][v] = hn::MulAdd(factor, g[v], acc[t][v]);
      }
    }
    grad += kV * lanes;
  };
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t end = r * tile.pitch + tile.cols;
    int64_t position = r * tile.pitch;
    // By twos: the taps' pointers do not all fit into registers.
    for (; position + 2 <= end; position += 2) {
      add(position);
      add(position + 1);
    }
    if (position < end) add(position);
  }
  for (int64_t t = 0; t < kTaps; ++t) {
    for (int64_t v = 0; v < kV; ++v, sums += lanes) {
      hn::StoreU(hn::Add(hn::LoadU(d, sums), acc[t][v]), d, sums);
    }
  }
}

// Adds what `rows` rows give to all sums of the unit.
template <int64_t kV>
void AddRows(const conv::WeightPass& pass, const WeightWork& work,
             int64_t rows) {
  constexpr int64_t kTaps = kTileTaps<kV>;
  const int64_t count = work.channels * pass.taps;
  for (int64_t first = 0; first < count; first += kTaps) {
    const float* x[kTaps];
    for (int64_t i = 0; i < kTaps; ++i) {
      x[i] = work.tile + work.offsets[first + i];
    }
    AddTapTile<kV>(pass.tile, rows, x, work.grad,
                   work.sums + first * work.width);
  }
}

// The last group of taps is filled up with its last tap.
void ListOffsets(const conv::WeightPass& pass, const WeightWork& work) {
  const int64_t count = work.channels * pass.taps;
  const int64_t kernel_w = pass.shape.kernel_w;
  for (int64_t i = 0; i < conv::RoundUp(count, conv::kTapGroup); ++i) {
    const int64_t index = HWY_MIN(i, count - 1);
    const int64_t tap = index % pass.taps;
    work.offsets[i] = static_cast<int32_t>(
        index / pass.taps * pass.tile.channel() +
        conv::ForwardOffset(pass.tile, tap / kernel_w, tap % kernel_w));
  }
}

// grad_y of outputs [first, first + outputs) of one image, `count` positions
// from `position` on, as [position][width]. `block` holds them in between where
// they are not f32.
void TransposeGrad(const ConstTensor& grad_y, int64_t first_plane,
                   int64_t outputs, int64_t pixels, int64_t position,
                   int64_t count, int64_t width, float* block, float* to) {
  const int64_t at = first_plane * pixels + position;
  const float* from = block;
  int64_t stride = count;
  if (grad_y.dtype() == DType::kF32) {
    from = grad_y.f32() + at;
    stride = pixels;
  } else {
    const Conv2dInput input{.x = grad_y};
    for (int64_t o = 0; o < outputs; ++o) {
      ReadRow(input, 0, at + o * pixels, count, block + o * count);
    }
  }
  Transpose(static_cast<size_t>(outputs), static_cast<size_t>(count), from,
            static_cast<size_t>(stride), to, static_cast<size_t>(width));
}

// Adds one image to the sums of the unit.
void AddImage(const conv::WeightPass& pass, const WeightWork& work,
              const Conv2dInput& x, const ConstTensor& grad_y, int64_t image) {
  const conv::Tile& tile = pass.tile;
  const Conv2dShape& s = pass.shape;
  for (int64_t row = 0; row < tile.rows; row += tile.block_rows) {
    const int64_t rows = HWY_MIN(tile.rows - row, tile.block_rows);
    LoadTile(tile, x, image, s.in_channels, work.first_channel, work.channels,
             row, rows, work.row, work.tile);
    TransposeGrad(grad_y, image * s.out_channels + work.first_output,
                  work.outputs, tile.rows * tile.cols, row * tile.cols,
                  rows * tile.cols, work.width, work.block, work.grad);
    if (work.vectors == 1) {
      AddRows<1>(pass, work, rows);
    } else {
      AddRows<conv::kWeightVectors>(pass, work, rows);
    }
  }
}

// sums[j * width + o] to elements j < count of row o of the gradient, which
// begins at element `at` and whose rows are `stride` apart.
void StoreWeights(const Conv2dGradWeightTarget& grad_w, const float* sums,
                  int64_t width, int64_t outputs, int64_t count, int64_t at,
                  int64_t stride) {
  if (grad_w.to.dtype() == DType::kF32 && !grad_w.accumulate) {
    Transpose(static_cast<size_t>(count), static_cast<size_t>(outputs), sums,
              static_cast<size_t>(width), grad_w.to.f32() + at,
              static_cast<size_t>(stride));
    return;
  }
  // A piece of a few rows at a time.
  constexpr int64_t kRows = 8, kElements = 64;
  float piece[kRows * kElements];
  const auto store_row = [&](int64_t first, int64_t n, float* row) HWY_ATTR {
    WithFloatType(grad_w.to.dtype(), [&](auto type) HWY_ATTR {
      using T = decltype(type);
      T* to = grad_w.to.As<T>() + first;
      if (grad_w.accumulate) {
        MapRow(n, to, row,
               [](V v, V there) HWY_ATTR { return hn::Add(there, v); });
      }
      CopyRowAs(n, row, to, [](V v) HWY_ATTR { return v; });
    });
  };
  for (int64_t o = 0; o < outputs; o += kRows) {
    const int64_t rows = HWY_MIN(outputs - o, kRows);
    for (int64_t j = 0; j < count; j += kElements) {
      const int64_t n = HWY_MIN(count - j, kElements);
      Transpose(static_cast<size_t>(n), static_cast<size_t>(rows),
                sums + j * width + o, static_cast<size_t>(width), piece,
                static_cast<size_t>(kElements));
      for (int64_t r = 0; r < rows; ++r) {
        store_row(at + (o + r) * stride + j, n, piece + r * kElements);
      }
    }
  }
}

// Sums over all images, then writes the unit's part of grad_w.
void SumUnit(const conv::WeightPass& pass, const WeightWork& work,
             int64_t images, const Conv2dInput& x, const ConstTensor& grad_y,
             const conv::WeightUnit& unit) {
  const conv::Tile& tile = pass.tile;
  const int64_t count = work.channels * pass.taps;
  ListOffsets(pass, work);
  ZeroRow(conv::RoundUp(count, conv::kTapGroup) * work.width, work.sums);
  // The outputs that are missing in the last vector.
  if (work.outputs < work.width) {
    ZeroRow(tile.block_rows * tile.cols * work.width, work.grad);
  }
  for (int64_t i = 0; i < images; ++i) AddImage(pass, work, x, grad_y, i);
  StoreWeights(unit.to, work.sums, work.width, work.outputs, count, unit.at,
               unit.stride);
}

}  // namespace

void RunGradWeight(const conv::WeightPass& pass, int64_t images,
                   const Conv2dInput& x, const ConstTensor& grad_y,
                   const Conv2dGradWeightTarget& grad_w,
                   const KernelContext& context) {
  const int64_t lanes = LaneCount();
  conv::ForWeightUnits(
      pass.shape, {conv::kWeightVectors * lanes, pass.chunk, pass.Floats()},
      grad_w, context, [&](const conv::WeightUnit& unit, float* scratch) {
        WeightWork work;
        work.tile = scratch;
        work.grad = work.tile + pass.tile.Floats(pass.chunk);
        work.sums = work.grad + pass.grad_floats();
        work.offsets =
            reinterpret_cast<int32_t*>(work.sums + pass.sum_floats());
        work.row = work.sums + pass.sum_floats() + pass.offset_floats();
        work.block = work.row + pass.row_floats();
        work.first_output = unit.first_output;
        work.outputs = unit.outputs;
        work.vectors = work.outputs <= lanes ? 1 : conv::kWeightVectors;
        work.width = work.vectors * lanes;
        work.first_channel = unit.first_channel;
        work.channels = unit.channels;
        SumUnit(pass, work, images, x, grad_y, unit);
      });
}

}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
