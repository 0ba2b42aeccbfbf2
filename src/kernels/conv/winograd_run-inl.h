// SPDX-License-Identifier: Apache-2.0
//
// Winograd's convolution (winograd.h) over a batch. Included once per SIMD
// target, after <hwy/highway.h>; hence no `#pragma once`.
#if defined(THIMBLE_KERNELS_CONV_WINOGRAD_RUN_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef THIMBLE_KERNELS_CONV_WINOGRAD_RUN_INL_H_
#undef THIMBLE_KERNELS_CONV_WINOGRAD_RUN_INL_H_
#else
#define THIMBLE_KERNELS_CONV_WINOGRAD_RUN_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "kernels/conv/unit_order.h"
#include "kernels/conv/winograd_tile-inl.h"
#include "kernels/conv/winograd_weights-inl.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3

// What does not change during a call.
struct WinogradCall {
  const conv::WinogradPass& pass;
  const Conv2dInput& input;
  const ConstTensor& weights;
  const conv::Sink& sink;
};

// A thread's scratch.
struct WinogradWork {
  float* weights;
  float* tile;
  float* sums;  // [strip][output][row][column][tile]
  float* line;
  conv::Partial* partials;      // of the group's outputs
  int64_t resident_group = -1;  // whose weights are there for all slices
};

// Weights of slice `slice`, of channels from `channel` on.
const float* SliceWeights(const WinogradCall& call, WinogradWork& work,
                          int64_t group, int64_t slice, int64_t channel,
                          int64_t channels) {
  const conv::WinogradPass& pass = call.pass;
  const int64_t first = group * pass.group;
  const int64_t outputs = HWY_MIN(pass.group, pass.outputs - first);
  float* to = work.weights;
  if (pass.resident) {
    to += slice * pass.slice_weights();
    if (work.resident_group == group) return to;
    if (slice == conv::kSlices - 1) work.resident_group = group;
  }
  TransformWeights(pass, call.weights, slice, first, outputs, channel, channels,
                   to);
  return to;
}

// `strips` sums of one output of the group, in the order of pixels, to where
// they belong. Strips of one image are neighbours there.
void WriteStrips(const WinogradCall& call, WinogradWork& work, int64_t group,
                 int64_t output, int64_t first_strip, int64_t strips) {
  const conv::WinogradPass& pass = call.pass;
  const int64_t channel = group * pass.group + output;
  const int64_t image_strips = pass.grid.image_strips();
  for (int64_t s = 0; s < strips;) {
    const int64_t strip = first_strip + s;
    const int64_t in_image = strip % image_strips;
    const int64_t n = HWY_MIN(strips - s, image_strips - in_image);
    const int64_t offset =
        ((strip / image_strips * pass.outputs + channel) * image_strips +
         in_image) *
        conv::kStripPixels;
    const bool plain = call.sink.plain();
    float* to = plain ? call.sink.to.f32() + offset : work.line;
    for (int64_t i = 0; i < n; ++i) {
      OrderPixels(
          pass.grid.width,
          work.sums + ((s + i) * pass.group + output) * conv::kStripPixels,
          to + i * conv::kStripPixels);
    }
    if (!plain) {
      WriteRow(call.sink, channel, offset, n * conv::kStripPixels, to,
               work.partials + output);
    }
    s += n;
  }
}

// Group `group` of outputs of a block of strips.
void SumStrips(const WinogradCall& call, WinogradWork& work, int64_t group,
               int64_t first_strip, int64_t strips) {
  const conv::WinogradPass& pass = call.pass;
  const int64_t outputs =
      HWY_MIN(pass.group, pass.outputs - group * pass.group);
  for (int64_t slice = 0; slice < conv::kSlices; ++slice) {
    for (int64_t c = 0; c < pass.grid.channels; c += pass.chunk) {
      const int64_t channels = HWY_MIN(pass.chunk, pass.grid.channels - c);
      const float* weights =
          SliceWeights(call, work, group, slice, c, channels);
      for (int64_t s = 0; s < strips; ++s) {
        TransformStrip(pass.grid, call.input, first_strip + s, slice, c,
                       channels, work.tile);
        float* sums = work.sums + s * pass.group * conv::kStripPixels;
        for (int64_t o = 0; o < outputs; o += 4) {
          MultiplyFour(work.tile, weights + o * channels * 4, channels, slice,
                       c == 0, sums + o * conv::kStripPixels);
        }
      }
    }
  }
  for (int64_t o = 0; o < outputs; ++o) {
    WriteStrips(call, work, group, o, first_strip, strips);
  }
}

// Group `group` of all strips of chunk `chunk` of images, whose sums are kept
// together.
void SumStripChunk(const WinogradCall& call, WinogradWork& work, int64_t group,
                   int64_t chunk, int64_t first_strip, int64_t strips) {
  const conv::WinogradPass& pass = call.pass;
  const int64_t first = group * pass.group;
  const int64_t outputs = HWY_MIN(pass.group, pass.outputs - first);
  for (int64_t o = 0; o < outputs; ++o) work.partials[o] = conv::Partial();
  for (int64_t s = 0; s < strips; s += pass.strips) {
    SumStrips(call, work, group, first_strip + s,
              HWY_MIN(pass.strips, strips - s));
  }
  conv::KeepPartials(work.partials, outputs,
                     call.sink.partials + 2 * (chunk * pass.outputs + first));
}

#endif  // 8 lanes

}  // namespace

// False where this target has no such way.
bool RunWinograd(const conv::WinogradPass& pass, int64_t images,
                 const Conv2dInput& input, const ConstTensor& weights,
                 const conv::Sink& sink, const KernelContext& context) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  const WinogradCall call{pass, input, weights, sink};
  const int64_t strips = images * pass.grid.image_strips();
  const bool reducing = sink.reducing();
  const int64_t chunk_images =
      conv::ChunkImages(pass.grid.height * pass.grid.width);
  const int64_t unit_strips =
      reducing ? chunk_images * pass.grid.image_strips() : pass.strips;
  const int64_t unit_bytes =
      unit_strips * conv::kStripPixels * pass.grid.channels * 4;
  const conv::UnitOrder order(pass.groups(), conv::CeilDiv(strips, unit_strips),
                              HWY_MAX(conv::kCachedBytes / unit_bytes, 1));
  // Threads share the strips evenly; a unit goes to the one that has its first.
  context.pool->ParallelFor(
      pass.groups() * strips, [&](int64_t begin, int64_t end, int thread) {
        WinogradWork work;
        work.weights = context.PerThread<float>(thread);
        work.tile = work.weights + pass.weight_floats();
        work.sums = work.tile + pass.tile_floats();
        work.line = work.sums + pass.sum_floats();
        work.partials =
            reinterpret_cast<conv::Partial*>(work.line + pass.line_floats());
        int64_t at = 0;
        for (int64_t i = 0; i < order.count() && at < end; ++i) {
          const int64_t unit = order.unit(i);
          const int64_t first = unit * unit_strips;
          const int64_t n = HWY_MIN(unit_strips, strips - first);
          const bool ours = at >= begin;
          at += n;
          if (!ours) continue;
          if (reducing) {
            SumStripChunk(call, work, order.group(i), unit, first, n);
          } else {
            SumStrips(call, work, order.group(i), first, n);
          }
        }
      });
  return true;
#else
  (void)pass, (void)images, (void)input, (void)weights, (void)sink,
      (void)context;
  return false;
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
