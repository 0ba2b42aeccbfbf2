// SPDX-License-Identifier: Apache-2.0
//
// The gradient of the weights of 3x3 and 1x1 kernels (weight_pass.h). Included
// once per SIMD target, after <hwy/highway.h>; hence no `#pragma once`.
#if defined(THIMBLE_KERNELS_CONV_ROW_WEIGHT_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef THIMBLE_KERNELS_CONV_ROW_WEIGHT_INL_H_
#undef THIMBLE_KERNELS_CONV_ROW_WEIGHT_INL_H_
#else
#define THIMBLE_KERNELS_CONV_ROW_WEIGHT_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "kernels/conv/grad_weight-inl.h"
#include "kernels/conv/weight_pass.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

// Channels of a register tile. With two vectors of outputs, three taps of each
// channel fill 15 registers, or 27 of 32.
#if HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_AVX2
constexpr int64_t kThreeTapChannels = 2;
constexpr int64_t kOneTapChannels = 4;
#else
constexpr int64_t kThreeTapChannels = 4;
constexpr int64_t kOneTapChannels = 8;
#endif

// One unit of work, and the positions in scratch: rows [first, first + rows) of
// `images` images.
struct RowWork {
  float* x_tile;
  float* grad;  // [image][position][outputs]
  float* sums;  // [channel][tap][outputs]
  float* piece;
  int64_t first_output;
  int64_t outputs;
  int64_t vectors;
  int64_t width;  // vectors * lanes
  int64_t first_channel;
  int64_t channels;
  int64_t images;
  int64_t first;
  int64_t rows;
  const float* x;  // the unit's first channel, source row x_row
  int64_t x_row;
  int64_t x_image;  // floats from one image to the next, and so on
  int64_t x_channel;
};

// Positions that a register tile sums over.
struct RowSpan {
  const float* x;  // at the first position's column, kernel column `padding`
  const float* grad;
  int64_t images;
  int64_t rows;
  int64_t cols;
  int64_t stride;
  int64_t x_image;
  int64_t x_channel;
  int64_t x_row;
  int64_t grad_image;
  bool clip_first;  // at the first column, the first tap meets padding
  bool clip_last;   // at the last column, the last tap does
};

// Adds to acc, for taps [kBegin, kEnd) of kC channels, what one position gives.
template <int64_t kC, int64_t kTaps, int64_t kV, int64_t kBegin, int64_t kEnd>
HWY_INLINE void AddPosition(const float* const (&x)[kC], int64_t column,
                            const float* grad, V (&acc)[kC * kTaps][kV]) {
  const D d;
  const int64_t lanes = LaneCount();
  V g[kV];
  THIMBLE_UNROLL
  for (int64_t v = 0; v < kV; ++v) g[v] = hn::LoadU(d, grad + v * lanes);
  THIMBLE_UNROLL
  for (int64_t c = 0; c < kC; ++c) {
    THIMBLE_UNROLL
    for (int64_t t = kBegin; t < kEnd; ++t) {
      const V factor = hn::Set(d, x[c][column + t - kTaps / 2]);
      THIMBLE_UNROLL
      for (int64_t v = 0; v < kV; ++v) {
        V& sum = acc[c * kTaps + t][v];
        sum = hn::MulAdd(factor, g[v], sum);
      }
    }
  }
}

// kC channels, one kernel row of kTaps taps, kV vectors of outputs. Channels'
// sums lie sums_channel floats apart.
template <int64_t kC, int64_t kTaps, int64_t kV>
void AddRowTile(const RowSpan& span, int64_t sums_channel,
                float* HWY_RESTRICT sums) {
  const D d;
  const int64_t lanes = LaneCount();
  V acc[kC * kTaps][kV];
  THIMBLE_UNROLL
  for (int64_t i = 0; i < kC * kTaps * kV; ++i) {
    acc[i / kV][i % kV] = hn::Zero(d);
  }
  const int64_t cols = span.cols - (span.clip_last ? 1 : 0);
  for (int64_t i = 0; i < span.images; ++i) {
    for (int64_t r = 0; r < span.rows; ++r) {
      const float* x[kC];
      THIMBLE_UNROLL
      for (int64_t c = 0; c < kC; ++c) {
        x[c] = span.x + i * span.x_image + r * span.x_row + c * span.x_channel;
      }
      const float* HWY_RESTRICT grad =
          span.grad + i * span.grad_image + r * span.cols * kV * lanes;
      int64_t col = 0, at = 0;
      const auto step = [&]() HWY_ATTR {
        ++col;
        at += span.stride;
        grad += kV * lanes;
      };
      if constexpr (kTaps == 3) {
        if (span.clip_first && span.clip_last && span.cols == 1) {
          AddPosition<kC, kTaps, kV, 1, 2>(x, at, grad, acc);
          continue;
        }
        if (span.clip_first) {
          AddPosition<kC, kTaps, kV, 1, 3>(x, at, grad, acc);
          step();
        }
      }
      while (col < cols) {  // NOLINT(bugprone-infinite-loop): step() moves col
        AddPosition<kC, kTaps, kV, 0, kTaps>(x, at, grad, acc);
        step();
      }
      if constexpr (kTaps == 3) {
        if (span.clip_last) AddPosition<kC, kTaps, kV, 0, 2>(x, at, grad, acc);
      }
    }
  }
  THIMBLE_UNROLL
  for (int64_t i = 0; i < kC * kTaps * kV; ++i) {
    float* to = sums + i / kV / kTaps * sums_channel +
                i / kV % kTaps * kV * lanes + i % kV * lanes;
    hn::StoreU(hn::Add(hn::LoadU(d, to), acc[i / kV][i % kV]), d, to);
  }
}

// All channels from c on, for one kernel row.
template <int64_t kC, int64_t kTaps, int64_t kV>
void AddChannels(RowSpan& span, int64_t channels, int64_t sums_channel,
                 float* sums) {
  for (; channels >= kC; channels -= kC) {
    AddRowTile<kC, kTaps, kV>(span, sums_channel, sums);
    span.x += kC * span.x_channel;
    sums += kC * sums_channel;
  }
  if constexpr (kC > 1) {
    constexpr int64_t kNext = kC > 4 ? kC / 2 : kC - 1;
    AddChannels<kNext, kTaps, kV>(span, channels, sums_channel, sums);
  }
}

template <int64_t kV>
void AddKernelRow(const conv::RowWeightPass& pass, RowSpan& span,
                  int64_t channels, int64_t sums_channel, float* sums) {
  if (pass.shape.kernel_w == 3) {
    AddChannels<kThreeTapChannels, 3, kV>(span, channels, sums_channel, sums);
  } else {
    AddChannels<kOneTapChannels, 1, kV>(span, channels, sums_channel, sums);
  }
}

// Adds what the positions in scratch give to all sums of the unit.
void AddPositions(const conv::RowWeightPass& pass, const RowWork& work) {
  const Conv2dShape& s = pass.shape;
  RowSpan span;
  span.images = work.images;
  span.cols = pass.width;
  span.stride = s.stride;
  span.x_image = work.x_image;
  span.x_channel = work.x_channel;
  span.x_row = s.stride * s.in_width;
  span.grad_image = work.rows * pass.width * work.width;
  span.clip_first = s.padding > 0;
  span.clip_last =
      s.padding > 0 && s.stride * (pass.width - 1) + 1 >= s.in_width;
  for (int64_t kh = 0; kh < s.kernel_h; ++kh) {
    // Rows of positions whose source row exists.
    const int64_t offset = kh - s.padding;
    int64_t begin = work.first, end = work.first + work.rows;
    if (offset < 0) begin = HWY_MAX(begin, int64_t{1});
    while (end > begin && (end - 1) * s.stride + offset >= s.in_height) --end;
    if (begin >= end) continue;
    span.rows = end - begin;
    span.x = work.x + (begin * s.stride + offset - work.x_row) * s.in_width;
    span.grad = work.grad + (begin - work.first) * pass.width * work.width;
    float* sums = work.sums + kh * s.kernel_w * work.width;
    const int64_t sums_channel = pass.taps() * work.width;
    if (work.vectors == 1) {
      AddKernelRow<1>(pass, span, work.channels, sums_channel, sums);
    } else {
      AddKernelRow<conv::kWeightVectors>(pass, span, work.channels,
                                         sums_channel, sums);
    }
  }
}

// Points work.x to the source rows of images from `image` on.
void FindSource(const conv::RowWeightPass& pass, const Conv2dInput& x,
                int64_t image, RowWork& work) {
  const Conv2dShape& s = pass.shape;
  const int64_t last = (work.first + work.rows - 1) * s.stride;
  const int64_t begin = HWY_MAX(int64_t{0}, work.first * s.stride - s.padding);
  const int64_t end = HWY_MIN(s.in_height, last - s.padding + s.kernel_h);
  work.x_row = begin;
  const auto offset = [&](int64_t i, int64_t c) {
    const int64_t plane = (image + i) * s.in_channels + work.first_channel + c;
    return (plane * s.in_height + begin) * s.in_width;
  };
  if (IsPlain(x)) {
    work.x = x.x.f32() + offset(0, 0);
    work.x_channel = s.in_height * s.in_width;
    work.x_image = s.in_channels * work.x_channel;
    return;
  }
  work.x = work.x_tile;
  work.x_channel = (end - begin) * s.in_width;
  work.x_image = work.channels * work.x_channel;
  for (int64_t i = 0; i < work.images; ++i) {
    for (int64_t c = 0; c < work.channels; ++c) {
      ReadRow(x, work.first_channel + c, offset(i, c), work.x_channel,
              work.x_tile + i * work.x_image + c * work.x_channel);
    }
  }
}

// grad_y of the positions, transposed.
void FindGrad(const conv::RowWeightPass& pass, const ConstTensor& grad_y,
              int64_t image, const RowWork& work) {
  const int64_t count = work.rows * pass.width;
  const int64_t step =
      grad_y.dtype() == DType::kF32 ? count : HWY_MIN(count, conv::kGradPiece);
  for (int64_t i = 0; i < work.images; ++i) {
    for (int64_t p = 0; p < count; p += step) {
      TransposeGrad(
          grad_y, (image + i) * pass.shape.out_channels + work.first_output,
          work.outputs, pass.height * pass.width, work.first * pass.width + p,
          HWY_MIN(step, count - p), work.width, work.piece,
          work.grad + (i * count + p) * work.width);
    }
  }
}

// Asks for what the next images, from `image` on, will need of x and grad_y.
// Streams of whole pages are left to the hardware, which sees them.
void PrefetchImages(const conv::RowWeightPass& pass, const Conv2dInput& x,
                    const ConstTensor& grad_y, int64_t image, int64_t images,
                    const RowWork& work) {
  const Conv2dShape& s = pass.shape;
  const auto ask = [](const ConstTensor& tensor, int64_t first, int64_t n) {
    const auto* from = static_cast<const std::byte*>(tensor.From(first).data());
    const auto bytes = static_cast<int64_t>(BytesFor(tensor.dtype(), n));
    for (int64_t i = 0; i < bytes; i += 64) {
      __builtin_prefetch(from + i, 0, 2);  // into the L2 cache
    }
  };
  const int64_t x_plane = s.in_height * s.in_width;
  if (x_plane >= 1024) return;
  const int64_t end = HWY_MIN(images, image + pass.images);
  for (int64_t i = image; i < end; ++i) {
    ask(x.x, (i * s.in_channels + work.first_channel) * x_plane,
        work.channels * x_plane);
    const int64_t y_plane = pass.height * pass.width;
    ask(grad_y, (i * s.out_channels + work.first_output) * y_plane,
        work.outputs * y_plane);
  }
}

void SumRowUnit(const conv::RowWeightPass& pass, RowWork& work, int64_t images,
                const Conv2dInput& x, const ConstTensor& grad_y,
                const conv::WeightUnit& unit) {
  const int64_t taps = pass.taps();
  ZeroRow(work.channels * taps * work.width, work.sums);
  // The outputs that are missing in the last vector.
  if (work.outputs < work.width) {
    ZeroRow(pass.images * pass.block_rows * pass.width * work.width, work.grad);
  }
  for (int64_t image = 0; image < images; image += pass.images) {
    work.images = HWY_MIN(pass.images, images - image);
    PrefetchImages(pass, x, grad_y, image + pass.images, images, work);
    for (int64_t row = 0; row < pass.height; row += pass.block_rows) {
      work.first = row;
      work.rows = HWY_MIN(pass.block_rows, pass.height - row);
      FindSource(pass, x, image, work);
      FindGrad(pass, grad_y, image, work);
      AddPositions(pass, work);
    }
  }
  StoreWeights(unit.to, work.sums, work.width, work.outputs,
               work.channels * taps, unit.at, unit.stride);
}

}  // namespace

void RunRowWeight(const conv::RowWeightPass& pass, int64_t images,
                  const Conv2dInput& x, const ConstTensor& grad_y,
                  const Conv2dGradWeightTarget& grad_w,
                  const KernelContext& context) {
  const int64_t lanes = LaneCount();
  const int64_t most = HWY_MIN(conv::kWeightVectors * lanes, pass.limit);
  conv::ForWeightUnits(
      pass.shape, {most, pass.chunk, pass.Floats()}, grad_w, context,
      [&](const conv::WeightUnit& unit, float* scratch) {
        RowWork work;
        work.x_tile = scratch;
        work.grad = work.x_tile + pass.x_floats();
        work.sums = work.grad + pass.grad_floats();
        work.piece = work.sums + pass.sum_floats();
        work.first_output = unit.first_output;
        work.outputs = unit.outputs;
        work.vectors = work.outputs <= lanes ? 1 : conv::kWeightVectors;
        work.width = work.vectors * lanes;
        work.first_channel = unit.first_channel;
        work.channels = unit.channels;
        SumRowUnit(pass, work, images, x, grad_y, unit);
      });
}

}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
