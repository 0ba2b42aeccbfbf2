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

// Adds one image to the sums of the unit.
void AddImage(const conv::WeightPass& pass, const WeightWork& work,
              const float* x, const float* grad_y) {
  const conv::Tile& tile = pass.tile;
  const int64_t pixels = tile.rows * tile.cols;
  for (int64_t row = 0; row < tile.rows; row += tile.block_rows) {
    const int64_t rows = HWY_MIN(tile.rows - row, tile.block_rows);
    LoadTile(tile, work.channels,
             x + work.first_channel * tile.src_height * tile.src_width, row,
             rows, work.tile);
    Transpose(static_cast<size_t>(work.outputs),
              static_cast<size_t>(rows * tile.cols),
              grad_y + work.first_output * pixels + row * tile.cols,
              static_cast<size_t>(pixels), work.grad,
              static_cast<size_t>(work.width));
    if (work.vectors == 1) {
      AddRows<1>(pass, work, rows);
    } else {
      AddRows<conv::kWeightVectors>(pass, work, rows);
    }
  }
}

// Sums over all images, then writes the unit's part of grad_w.
void SumUnit(const conv::WeightPass& pass, const WeightWork& work,
             int64_t images, const float* x, const float* grad_y,
             float* grad_w) {
  const Conv2dShape& s = pass.shape;
  const conv::Tile& tile = pass.tile;
  const int64_t count = work.channels * pass.taps;
  ListOffsets(pass, work);
  ZeroRow(conv::RoundUp(count, conv::kTapGroup) * work.width, work.sums);
  // The outputs that are missing in the last vector.
  if (work.outputs < work.width) {
    ZeroRow(tile.block_rows * tile.cols * work.width, work.grad);
  }
  for (int64_t i = 0; i < images; ++i) {
    AddImage(pass, work,
             x + i * s.in_channels * tile.src_height * tile.src_width,
             grad_y + i * s.out_channels * tile.rows * tile.cols);
  }
  const int64_t all = s.in_channels * pass.taps;
  Transpose(static_cast<size_t>(count), static_cast<size_t>(work.outputs),
            work.sums, static_cast<size_t>(work.width),
            grad_w + work.first_output * all + work.first_channel * pass.taps,
            static_cast<size_t>(all));
}

}  // namespace

// Threads share the pairs (block of outputs, chunk of channels).
void RunGradWeight(const conv::WeightPass& pass, int64_t images, const float* x,
                   const float* grad_y, float* grad_w,
                   const KernelContext& context) {
  const Conv2dShape& s = pass.shape;
  const int64_t lanes = LaneCount();
  const int64_t most = conv::kWeightVectors * lanes;
  const int64_t chunks = pass.chunks();
  context.pool->ParallelFor(
      conv::CeilDiv(s.out_channels, most) * chunks,
      [&](int64_t begin, int64_t end, int thread) {
        WeightWork work;
        work.tile = context.PerThread<float>(thread);
        work.grad = work.tile + pass.tile.Floats(pass.chunk);
        work.sums = work.grad + pass.grad_floats();
        work.offsets =
            reinterpret_cast<int32_t*>(work.sums + pass.sum_floats());
        for (int64_t unit = begin; unit < end; ++unit) {
          work.first_output = unit / chunks * most;
          work.outputs = HWY_MIN(s.out_channels - work.first_output, most);
          work.vectors = work.outputs <= lanes ? 1 : conv::kWeightVectors;
          work.width = work.vectors * lanes;
          work.first_channel = unit % chunks * pass.chunk;
          work.channels =
              HWY_MIN(s.in_channels - work.first_channel, pass.chunk);
          SumUnit(pass, work, images, x, grad_y, grad_w);
        }
      });
}

}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
