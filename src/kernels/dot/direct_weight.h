// SPDX-License-Identifier: Apache-2.0
//
// The gradient of a convolution's weights in bf16 by dot products (dot_form.h),
// directly: every kernel of stride 1 or 2. Pure functions of the shape.
// Internal to convolutions.
//
// Lanes run over outputs. A word holds two neighbouring positions, of grad_y
// (transposed, so that 16 outputs are a vector) and of what a tap reads. That
// is a plane of its own for each kernel column (direct.h), so that positions
// are neighbours over row ends too. Words of x may begin at any position.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/context.h"
#include "kernels/conv/conv.h"
#include "kernels/conv/tile.h"
#include "kernels/conv/weight_units.h"
#include "kernels/dot/direct_planes.h"
#include "kernels/dot/lines_ahead.h"

namespace thimble::kernels::dot {

inline constexpr int64_t kSumTaps = 12;        // of a register tile
inline constexpr int64_t kMostBlock = 64;      // outputs of a unit
inline constexpr int64_t kMostStepImages = 8;  // summed up in registers

// A unit of work is a block of outputs and a chunk of channels; it passes over
// all images, `images` of them, or some rows of one, at a time.
struct DirectWeightPass {
  Conv2dShape shape;
  Planes planes;  // of x
  int64_t chunk = 0;
  int64_t block = 0;  // whole vectors
  int64_t images = 1;

  int64_t taps() const { return shape.kernel_h * shape.kernel_w; }
  int64_t chunks() const { return conv::CeilDiv(shape.in_channels, chunk); }
  int64_t blocks() const { return conv::CeilDiv(shape.out_channels, block); }
  // Behind a plane is a zero, for the last one of an odd number of positions.
  int64_t plane(int64_t a) const {
    return conv::RoundUp(planes.plane(a) + 1, 2);
  }
  // Of all planes of a channel, and where plane (a, b) begins in them.
  int64_t channel_halves() const {
    return planes.count_w * (plane(0) + (planes.count_h > 1 ? plane(1) : 0));
  }
  int64_t plane_at(int64_t a, int64_t b) const {
    return b * plane(a) + (a == 0 ? 0 : planes.count_w * plane(0));
  }
  int64_t image_halves() const { return chunk * channel_halves(); }
  int64_t position_pairs(int64_t rows) const {
    return conv::CeilDiv(rows * planes.cols, 2);
  }

  // A thread's scratch, in words: where taps begin, x, transposed grad_y,
  // sums.
  int64_t tap_words() const {
    return conv::RoundUp(conv::RoundUp(chunk * taps(), kSumTaps), kVector);
  }
  int64_t x_words() const {
    return conv::RoundUp(images * image_halves() / 2, kVector);
  }
  int64_t grad_words() const {
    return images * position_pairs(planes.block_rows) * block;
  }
  int64_t sum_words() const {
    return conv::RoundUp(chunk * taps(), kSumTaps) * block;
  }
  size_t Bytes() const {
    return sizeof(uint32_t) * static_cast<size_t>(tap_words() + x_words() +
                                                  grad_words() + sum_words());
  }
};

// About the cycles that an image takes on one of two threads: dot products,
// rows of x, squares of grad_y, sums that leave the registers.
inline constexpr int64_t kRowCost = 4;
inline constexpr int64_t kSquareCost = 100;
inline constexpr int64_t kFlushCost = 3;
inline int64_t DirectWeightCost(const DirectWeightPass& pass) {
  const Planes& planes = pass.planes;
  const int64_t vectors = pass.block / kVector;
  const int64_t tiles = planes.blocks();
  const int64_t pairs = tiles * pass.position_pairs(planes.block_rows);
  const int64_t sums =
      conv::RoundUp(pass.chunk * pass.taps(), kSumTaps) * vectors;
  const int64_t loaded = tiles * (planes.block_rows + planes.halo);
  const int64_t row = conv::CeilDiv(planes.cols, kVector) * kRowCost;
  const int64_t unit = sums * pairs +
                       pass.chunk * planes.count() * loaded * row +
                       vectors * conv::CeilDiv(pairs, kVector) * kSquareCost +
                       sums * kFlushCost * tiles / pass.images;
  return conv::CeilDiv(pass.blocks() * pass.chunks(), 2) * unit;
}

// The same sums for a gradient that is handed over in pieces: blocks are no
// larger than a region.
inline DirectWeightPass InPieces(DirectWeightPass pass) {
  pass.block = kVector;
  return pass;
}

// Rows and images at a time, which decide bits: as many as fit whether the
// gradient is stored or not.
inline bool SetSteps(const conv::WeightScratch& scratch,
                     DirectWeightPass& pass) {
  const auto fits = [&] {
    return pass.Bytes() <= scratch.stored &&
           InPieces(pass).Bytes() <= scratch.in_pieces;
  };
  Planes& planes = pass.planes;
  pass.images = 1;
  planes.block_rows = planes.rows;
  while (!fits()) {
    if (planes.block_rows == 1) return false;
    planes.block_rows = conv::CeilDiv(planes.block_rows, 2);
  }
  while (planes.block_rows == planes.rows && pass.images < kMostStepImages) {
    pass.images *= 2;
    if (fits()) continue;
    pass.images /= 2;
    break;
  }
  return true;
}

// What the next images have, and how many lines of each are asked for at a
// time.
struct WeightAhead {
  LinesAhead x, grad_y;
  int64_t lines = 0;

  void Fetch() {
    for (int64_t i = 0; i < lines; ++i) {
      x.Fetch();
      grad_y.Fetch();
    }
  }
};

// Twice the outputs of half the channels, if sums have the same order: with
// stride 2, loading x costs more than transposing grad_y.
inline void TakeWideBlocks(const conv::WeightScratch& scratch,
                           DirectWeightPass& pass) {
  DirectWeightPass wide = pass;
  wide.block = 2 * pass.block;
  wide.chunk = conv::CeilDiv(pass.chunk, 2);
  // Groups of taps must not become more.
  const auto groups = [](const DirectWeightPass& p) {
    return conv::CeilDiv(p.chunk * p.taps(), kSumTaps);
  };
  if (2 * groups(wide) > groups(pass)) return;
  if (pass.planes.step == 1 || pass.shape.out_channels % wide.block != 0 ||
      !SetSteps(scratch, wide)) {
    return;
  }
  if (wide.images != pass.images ||
      wide.planes.block_rows != pass.planes.block_rows) {
    return;
  }
  pass = wide;
}

// False where the stride is another one, or the scratch is not enough.
inline bool MakeDirectWeightPass(const Conv2dShape& s,
                                 const conv::WeightScratch& scratch,
                                 DirectWeightPass& best) {
  if (s.stride > 2) return false;
  DirectWeightPass pass;
  pass.shape = s;
  pass.planes = ForwardPlanes(s);
  int64_t least = 0;
  for (int64_t block = kVector; block <= kMostBlock; block += kVector) {
    pass.block = block;
    if (block >= s.out_channels + kVector) break;
    for (int64_t chunks = 1; chunks < 2 * s.in_channels; chunks *= 2) {
      pass.chunk = conv::CeilDiv(s.in_channels, chunks);
      if (!SetSteps(scratch, pass)) continue;
      const int64_t cost = DirectWeightCost(pass);
      if (least != 0 && cost >= least) continue;
      least = cost;
      best = pass;
    }
  }
  if (least == 0) return false;
  TakeWideBlocks(scratch, best);
  return true;
}

// The gradient of the weights, if x and grad_y are bf16, grad_w is bf16, f32 or
// in pieces, and the shape has this way in the scratch that is planned
// (conv/weight_units.h); else false. REQUIRES: dot products are on.
bool RunDirectWeight(const Conv2dShape& shape, int64_t images,
                     const Conv2dInput& x, const ConstTensor& grad_y,
                     const Conv2dGradWeightTarget& grad_w,
                     const KernelContext& context);

}  // namespace thimble::kernels::dot
