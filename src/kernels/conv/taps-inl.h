// SPDX-License-Identifier: Apache-2.0
//
// The forward pass and the gradient of the input as sums over taps
// (tile.h). Included once per SIMD target, after <hwy/highway.h>; hence no
// `#pragma once`.
#if defined(THIMBLE_KERNELS_CONV_TAPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef THIMBLE_KERNELS_CONV_TAPS_INL_H_
#undef THIMBLE_KERNELS_CONV_TAPS_INL_H_
#else
#define THIMBLE_KERNELS_CONV_TAPS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "kernels/conv/pass.h"
#include "kernels/conv/rows-inl.h"
#include "kernels/conv/tile-inl.h"
#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

// The register tile: outputs x vectors of positions. Its sums, the vectors that
// they are made of and one broadcast weight fill 16 registers, or 28 of 32;
// SSE4 has no fused multiply-add and needs registers for products.
#if HWY_TARGET == HWY_SSE4
constexpr int64_t kOutputs = 4;
constexpr int64_t kVectors = 2;
#elif HWY_TARGET == HWY_AVX2
constexpr int64_t kOutputs = 4;
constexpr int64_t kVectors = 3;
#else
constexpr int64_t kOutputs = 8;
constexpr int64_t kVectors = 3;
#endif
static_assert(kOutputs <= conv::kMostOutputs);

// What a register tile reads besides its position.
struct TapSum {
  const conv::Tap* taps;
  int64_t tap_count;
  int64_t channels;
  int64_t channel_floats;  // of the tile
  int64_t channel_weights;
  int64_t output_weights;
};

// sums[o * stride + q] for kO outputs and kV vectors of positions. Weights are
// read where they lie: a channel's taps are neighbours for one output (forward)
// or for all outputs of the tile (gradient), so that lines are used up either
// way and there is nothing to pack.
template <int64_t kO, int64_t kV>
void SumTile(const TapSum& sum, const float* HWY_RESTRICT tile,
             const float* HWY_RESTRICT weights, float* HWY_RESTRICT sums,
             int64_t stride) {
  const D d;
  const int64_t lanes = LaneCount();
  const conv::Tap* const taps = sum.taps;
  const conv::Tap* const taps_end = taps + sum.tap_count;
  const int64_t output_weights = sum.output_weights;
  V acc[kO][kV];
  for (int64_t o = 0; o < kO; ++o) {
    for (int64_t v = 0; v < kV; ++v) acc[o][v] = hn::Zero(d);
  }
  for (int64_t c = sum.channels; c != 0; --c) {
    for (const conv::Tap* tap = taps; tap != taps_end; ++tap) {
      const float* in = tile + tap->offset;
      const float* w = weights + tap->weight;
      V x[kV];
      for (int64_t v = 0; v < kV; ++v) x[v] = hn::LoadU(d, in + v * lanes);
      for (int64_t o = 0; o < kO; ++o) {
        const V factor = hn::Set(d, w[o * output_weights]);
        for (int64_t v = 0; v < kV; ++v) {
          acc[o][v] = hn::MulAdd(factor, x[v], acc[o][v]);
        }
      }
    }
    tile += sum.channel_floats;
    weights += sum.channel_weights;
  }
  for (int64_t o = 0; o < kO; ++o) {
    for (int64_t v = 0; v < kV; ++v) {
      hn::StoreU(acc[o][v], d, sums + o * stride + v * lanes);
    }
  }
}

// All positions of kO outputs.
template <int64_t kO>
void SumPositions(const TapSum& sum, int64_t positions, const float* tile,
                  const float* weights, float* sums, int64_t stride) {
  const int64_t lanes = LaneCount();
  int64_t left = conv::CeilDiv(positions, lanes);
  for (; left >= kVectors; left -= kVectors) {
    SumTile<kO, kVectors>(sum, tile, weights, sums, stride);
    tile += kVectors * lanes;
    sums += kVectors * lanes;
  }
  static_assert(kVectors <= 3);
  if (left == 2) SumTile<kO, 2>(sum, tile, weights, sums, stride);
  if (left == 1) SumTile<kO, 1>(sum, tile, weights, sums, stride);
}

template <int64_t kO = kOutputs>
HWY_INLINE void SumOutputs(const TapSum& sum, int64_t outputs,
                           int64_t positions, const float* tile,
                           const float* weights, float* sums, int64_t stride) {
  if (outputs == kO) {
    SumPositions<kO>(sum, positions, tile, weights, sums, stride);
  } else if constexpr (kO > 1) {
    SumOutputs<kO - 1>(sum, outputs, positions, tile, weights, sums, stride);
  }
}

// line[phases * i + b] = sums[b * stride + i], for one row of positions.
HWY_INLINE void InterleavePhases(int64_t phases, const float* sums,
                                 int64_t stride, int64_t cols, float* line) {
  if (phases == 2) {
    const D d;
    const int64_t lanes = LaneCount();
    for (int64_t i = 0; i < cols; i += lanes) {
      hn::StoreInterleaved2(hn::LoadU(d, sums + i),
                            hn::LoadU(d, sums + stride + i), d, line + 2 * i);
    }
    return;
  }
  for (int64_t b = 0; b < phases; ++b) {
    for (int64_t i = 0; i < cols; ++i) {
      line[phases * i + b] = sums[b * stride + i];
    }
  }
}

// A thread's scratch, and the tile of one image that it works on.
struct TapWork {
  conv::Tap* taps = nullptr;
  float* tile = nullptr;
  float* sums = nullptr;     // [column phase][output][position]
  float* line = nullptr;     // a row of output
  float* row = nullptr;      // a row of input
  float* weights = nullptr;  // of a block of outputs, where they are not f32
  conv::Partial* partials = nullptr;  // of all outputs
  int64_t image = 0;
  int64_t first_row = 0;
  int64_t rows = 0;
};

// What does not change during a call.
struct TapCall {
  const conv::Pass& pass;
  const Conv2dInput& input;
  const ConstTensor& weights;
  const conv::Sink& sink;
};

// Writes `outputs` outputs from `first` on, of row phase a, from the sums.
void StoreOutputs(const TapCall& call, const TapWork& work, int64_t a,
                  int64_t first, int64_t outputs) {
  const conv::Pass& pass = call.pass;
  const conv::Tile& tile = pass.tile;
  const int64_t stride = tile.positions();
  for (int64_t o = 0; o < outputs; ++o) {
    const int64_t plane = work.image * pass.outputs + first + o;
    for (int64_t r = 0; r < work.rows; ++r) {
      const int64_t row = pass.phases * (work.first_row + r) + a - pass.shift;
      if (row < 0 || row >= pass.out_height) continue;
      float* sums = work.sums + o * stride + r * tile.pitch;
      if (pass.phases > 1) {
        InterleavePhases(pass.phases, sums, kOutputs * stride, tile.cols,
                         work.line);
        sums = work.line + pass.shift;
      }
      WriteRow(call.sink, first + o,
               (plane * pass.out_height + row) * pass.out_width, pass.out_width,
               sums, work.partials + first + o);
    }
  }
}

// The weights of a block of outputs as f32: where they lie, or a copy in
// scratch. Sets from where to where one channel's, and one output's, are.
const float* BlockWeights(const TapCall& call, const TapWork& work,
                          int64_t first, int64_t outputs, TapSum& sum) {
  const conv::Pass& pass = call.pass;
  sum.channel_weights = pass.channel_weights;
  sum.output_weights = pass.output_weights;
  const int64_t base = first * pass.output_weights;
  if (call.weights.dtype() == DType::kF32) return call.weights.f32() + base;
  const Conv2dInput input{.x = call.weights};
  const int64_t taps = pass.shape.kernel_h * pass.shape.kernel_w;
  if (pass.forward) {  // all channels of an output are neighbours
    for (int64_t o = 0; o < outputs; ++o) {
      ReadRow(input, 0, base + o * pass.output_weights, pass.output_weights,
              work.weights + o * pass.output_weights);
    }
    return work.weights;
  }
  sum.channel_weights = outputs * taps;
  for (int64_t c = 0; c < pass.channels; ++c) {
    ReadRow(input, 0, base + c * pass.channel_weights, outputs * taps,
            work.weights + c * outputs * taps);
  }
  return work.weights;
}

// Block `block` of outputs of the tile that `work` holds.
void SumBlock(const TapCall& call, const TapWork& work, int64_t block) {
  const conv::Pass& pass = call.pass;
  const int64_t first = block * kOutputs;
  const int64_t outputs = HWY_MIN(pass.outputs - first, kOutputs);
  const int64_t stride = pass.tile.positions();
  TapSum sum;
  sum.taps = work.taps;
  sum.channels = pass.channels;
  sum.channel_floats = pass.tile.channel();
  const float* weights = BlockWeights(call, work, first, outputs, sum);
  for (int64_t a = 0; a < pass.phases; ++a) {
    for (int64_t b = 0; b < pass.phases; ++b) {
      sum.tap_count = conv::ListTaps(pass, a, b, work.taps);
      SumOutputs(sum, outputs, work.rows * pass.tile.pitch, work.tile, weights,
                 work.sums + b * kOutputs * stride, stride);
    }
    StoreOutputs(call, work, a, first, outputs);
  }
}

// Sums over the images of one chunk begin.
void ResetPartials(const TapCall& call, const TapWork& work) {
  for (int64_t o = 0; o < call.pass.outputs; ++o) {
    work.partials[o] = conv::Partial();
  }
}

TapWork WorkOf(const conv::Pass& pass, const KernelContext& context,
               int thread) {
  TapWork work;
  work.taps = context.PerThread<conv::Tap>(thread);
  work.tile = context.PerThread<float>(thread) + pass.tap_floats();
  work.sums = work.tile + pass.tile.Floats(pass.channels);
  work.line = work.sums + pass.sum_floats();
  work.row = work.line + pass.line_floats();
  work.weights = work.row + pass.row_floats();
  work.partials =
      reinterpret_cast<conv::Partial*>(work.weights + pass.weight_floats());
  return work;
}

}  // namespace

// Threads share the triples (image, tile, block of outputs), in this order, so
// that a thread loads at most one tile that another loads too; or, with sums
// over images, chunks of images.
void RunTaps(const conv::Pass& pass, int64_t images, const Conv2dInput& input,
             const ConstTensor& weights, const conv::Sink& sink,
             const KernelContext& context) {
  const TapCall call{pass, input, weights, sink};
  const conv::Tile& tile = pass.tile;
  const int64_t blocks = conv::CeilDiv(pass.outputs, kOutputs);
  const int64_t image_units = tile.blocks() * blocks;
  const int64_t all = images * image_units;
  const int64_t chunk_units =
      sink.reducing()
          ? conv::ChunkImages(pass.out_height * pass.out_width) * image_units
          : 1;
  context.pool->ParallelFor(
      conv::CeilDiv(all, chunk_units),
      [&](int64_t begin, int64_t end, int thread) {
        TapWork work = WorkOf(pass, context, thread);
        const int64_t first = begin * chunk_units;
        const int64_t last = HWY_MIN(end * chunk_units, all);
        for (int64_t unit = first; unit < last; ++unit) {
          work.image = unit / image_units;
          if (sink.reducing() && unit % chunk_units == 0) {
            ResetPartials(call, work);
          }
          if (unit == first || unit % blocks == 0) {
            work.first_row = unit % image_units / blocks * tile.block_rows;
            work.rows = HWY_MIN(tile.rows - work.first_row, tile.block_rows);
            LoadTile(tile, input, work.image, pass.channels, 0, pass.channels,
                     work.first_row, work.rows, work.row, work.tile);
          }
          SumBlock(call, work, unit % blocks);
          if (sink.reducing() &&
              (unit + 1 == all || (unit + 1) % chunk_units == 0)) {
            conv::KeepPartials(
                work.partials, pass.outputs,
                sink.partials + 2 * (unit / chunk_units) * pass.outputs);
          }
        }
      });
}

}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
