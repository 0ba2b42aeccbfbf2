// SPDX-License-Identifier: Apache-2.0
//
// The parts of dot/winograd.h that are compiled once per build, as
// dot/winograd.cc calls them. A FlushDenormals must be alive around them,
// except where it says so.
#pragma once

#include <cstdint>

namespace thimble::kernels::dot {

inline constexpr int64_t kOutputStep = 4;  // outputs multiplied together

// Of a weight's gradient, transformed and multiplied together.
inline constexpr int64_t kGradChannels = 8;

// Floats from one channel's sums of a weight's gradient to the next one's. With
// a power of two, all channels would want the same lines of the cache.
constexpr int64_t GradSumStride(int64_t outputs) { return 16 * outputs + 16; }

// Where a strip's tiles lie in a plane: row k of all its tiles, k being 0 for
// the row above the first output of each, is up to four pieces of `width`
// pixels, from element offset[k][piece] on. Where the plane has no such row,
// some row of it stands there, and the bits of its tiles in lanes[k] are 0.
struct StripRows {
  int64_t width = 0;
  int64_t offset[4][4] = {};
  uint32_t lanes[4] = {};
};

// Planes that are read, from the first of them on. `scale` and `shift` (both or
// none) are of the same channels.
struct Planes {
  const uint16_t* from = nullptr;
  int64_t plane = 0;  // elements
  // From a plane to what a strip that is read later adds to what is read now:
  // 64 elements, which are brought into the cache with slice 0.
  int64_t next = 0;
  const float* scale = nullptr;
  const float* shift = nullptr;
  bool relu = false;

  // Those from `channel` on.
  Planes From(int64_t channel) const {
    Planes planes = *this;
    planes.from += channel * plane;
    if (scale != nullptr) {
      planes.scale += channel;
      planes.shift += channel;
    }
    return planes;
  }
};

// A strip of a batch: its rows, and the planes of its image from a channel on.
struct BatchStrip {
  StripRows rows;
  Planes planes;
};

// The sums of one output for neighbouring strips of a plane, each [row]
// [column][tile].
struct SumRow {
  int64_t width = 0;
  int64_t strips = 0;
  float* sums = nullptr;
  int64_t stride = 0;  // from one strip to the next
};

// Two sums over such a row.
struct RowSums {
  double first = 0.0;
  double second = 0.0;
};

// Of one channel, as in conv::Sink.
struct MaskFactors {
  float scale = 0.0f;
  float shift = 0.0f;
  float mean = 0.0f;
  float inv_std = 0.0f;
};

// [begin, end), multiples of kOutputStep.
struct OutputRange {
  int64_t begin = 0;
  int64_t end = 0;
};

struct WinogradKernels {
  // A strip: [slice][pair of channels][column][tile], in pairs.
  void (*transform_input)(const StripRows& rows, const Planes& planes,
                          int64_t channels, uint32_t* to);
  // Slice `slice` of `count` strips and kGradChannels channels from `channel`
  // on: [half][strip][channel][column of half][word of tiles], for the gradient
  // of the weights. Halves are columns 0 and 1, and 2 and 3.
  void (*transform_tiles)(const BatchStrip* strips, int64_t count,
                          int64_t channel, int64_t slice, uint32_t* to);
  // 16 outputs: [slice][pair of channels][column][output]. Weights lie as the
  // pass says; flipped in both directions where it is not forward.
  void (*transform_weights)(const uint16_t* from, int64_t output_weights,
                            int64_t channel_weights, int64_t channels,
                            bool forward, uint32_t* to);
  // Adds the products to sums[output][row][column][tile] of those `outputs` of
  // 16; `first`: of the first channels.
  void (*multiply)(const uint32_t* tiles, const uint32_t* weights,
                   int64_t channels, const OutputRange& outputs, bool first,
                   float* sums);

  // These four without a FlushDenormals, as the writers of conv/, which they
  // stand for where all tensors are bf16. `to` and the like are where the row's
  // first pixel belongs.
  //
  // Sums plus residual (unless null) as bf16. The sum of what was stored; with
  // `keep`, that also takes the place of the sums.
  double (*write_sums)(const SumRow& row, const uint16_t* residual, bool keep,
                       uint16_t* to);
  // The sums of x - center and of its square.
  RowSums (*sum_deviations)(const SumRow& row, float center);
  // The gradient's way through relu(x * scale + shift), to `to` unless null,
  // and its sums for the norm.
  RowSums (*write_masked)(const SumRow& row, const uint16_t* x,
                          const MaskFactors& factors, uint16_t* to);
  // Sums in the order of pixels.
  void (*order_pixels)(const SumRow& row, float* to);

  // grad_y of `outputs` planes: [row of a tile][pair of tiles][output][tile],
  // words of two pixels.
  void (*transpose_grad)(const StripRows& rows, const Planes& planes,
                         int64_t outputs, uint32_t* to);
  // Slice `slice` of that, of `strips` strips: [column][strip][pair of tiles]
  // [output], in pairs. A's last row and column are -1, for which 1 stands
  // here; fold has the sign.
  void (*transform_grad)(const uint32_t* from, int64_t outputs, int64_t slice,
                         int64_t strips, uint32_t* to);
  // Adds products of that and tiles, in the order of strips, to the sums of a
  // slice, [channel][16][output], where channels are GradSumStride apart;
  // `first`: sets them. Each sum goes on from what is there, so how many strips
  // there are does not decide bits. REQUIRES: 16 or 32 outputs.
  void (*multiply_grad)(const uint32_t* grad, const uint32_t* tiles,
                        int64_t outputs, int64_t strips, bool first,
                        float* sums);
  // These to [channel][tap][output], in place; `line` is for one channel.
  void (*fold)(int64_t outputs, int64_t channels, float* line, float* sums);
};

// Of the active build. REQUIRES: dot products are on.
const WinogradKernels& ActiveWinogradKernels();

}  // namespace thimble::kernels::dot
