// SPDX-License-Identifier: Apache-2.0
//
// Convolutions of bf16 by dot products (dot_form.h), directly: every kernel of
// stride 1 or 2, forward and gradient of the input. Pure functions of the
// shape. Internal to convolutions.
//
// A word of 32 bits holds the values of channels c (low half) and c + 1 at one
// pixel, with zeros where there is no c + 1. What a kernel column reads is a
// plane of its own in the scratch, without padding columns: positions, which
// are the pixels of the output, follow each other over row ends, and a vector
// of 16 of them is one load for every tap. With stride 2, even and odd rows are
// planes of their own as well.
//
// The gradient of the input of stride 2 is made of four phases, one for either
// parity of row and column: output row 2u + a is the sum over kernel rows kh of
// the parity of a + padding, each of which meets row u + (a + padding - kh) / 2
// of grad_y.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/context.h"
#include "kernels/conv/conv.h"
#include "kernels/conv/operand.h"
#include "kernels/conv/tile.h"
#include "kernels/dot/direct_planes.h"
#include "kernels/dot/winograd.h"

namespace thimble::kernels::dot {

inline constexpr int64_t kTileOutputs = 4;  // of a register tile
inline constexpr int64_t kTileVectors = 4;  // of positions, in a register tile
inline constexpr int64_t kGoodVectors = 8;  // that a tile should have
inline constexpr int64_t kMostImages = 4;   // of a tile
inline constexpr size_t kCachedBytes = size_t{24} * 1024;

struct DirectPass {
  Conv2dShape shape;
  bool forward = true;
  bool plain = false;  // results are stored as they are, and nothing else
  Planes planes;
  int64_t channels = 0;  // summed over
  int64_t outputs = 0;
  int64_t out_height = 0;
  int64_t out_width = 0;
  int64_t phases = 1;  // output rows and columns per position: 1 or 2
  int64_t block = 0;   // outputs whose weights and sums are in scratch
  int64_t images = 1;  // whole ones that a tile holds

  int64_t taps() const { return shape.kernel_h * shape.kernel_w; }
  // Whether a vector of either column phase is one row of plain results, or two
  // of 16. Phases without taps, which kernels of 1x1 have, are not worth it.
  bool JoinsPhases() const {
    return plain && phases == 2 &&
           std::min(shape.kernel_h, shape.kernel_w) > 1 &&
           out_width == 2 * planes.cols && out_height == 2 * planes.rows &&
           (planes.cols % kVector == 0 || planes.cols == kVector / 2);
  }
  int64_t pairs() const { return conv::CeilDiv(channels, 2); }
  int64_t blocks() const { return conv::CeilDiv(outputs, block); }
  int64_t image_vectors(int64_t rows) const {
    return conv::CeilDiv(rows * planes.cols, kVector);
  }
  int64_t vectors() const { return images * image_vectors(planes.block_rows); }
  // A line more where pairs would meet in few sets of the first-level cache.
  int64_t pair_words() const {
    return planes.words() + (planes.words() % 256 == 0 ? kVector : 0);
  }
  int64_t image_words() const { return pairs() * pair_words(); }

  // A thread's scratch, in words: taps, tile, weights of a block of outputs,
  // sums of it, phases of one output side by side, sums over images. What is
  // plain is made of phases at most.
  int64_t tap_words() const { return conv::RoundUp(2 * taps(), kVector); }
  int64_t tile_words() const {
    return conv::RoundUp(images * image_words(), kVector) + kVector;
  }
  int64_t weight_words() const {
    return conv::RoundUp(block * pairs() * taps(), kVector) + kVector;
  }
  int64_t sum_words() const {
    if (plain && phases == 1) return 0;
    return (plain ? phases : phases * phases) * block * vectors() * kVector;
  }
  int64_t row_words() const {
    if (plain || phases == 1) return 0;
    return conv::RoundUp(4 * planes.block_rows * planes.cols, kVector) +
           2 * kVector;
  }
  int64_t partial_words() const {
    return plain ? 0 : conv::PartialFloats(outputs);
  }
  size_t Bytes() const {
    return sizeof(uint32_t) *
           static_cast<size_t>(tap_words() + tile_words() + weight_words() +
                               sum_words() + row_words() + partial_words());
  }
};

// Rows and images of a tile, within so many bytes. Of the heights that fit,
// those with the fewest register tiles in all; of these, the fewest tiles.
// Where images are small, several are in a tile.
inline bool SetTiles(size_t bytes, DirectPass& pass) {
  Planes& planes = pass.planes;
  const auto vectors_of = [&](int64_t rows) {
    return conv::RoundUp(pass.image_vectors(rows), kTileVectors);
  };
  int64_t least = 0, best = 0;
  pass.images = 1;
  for (int64_t rows = planes.rows; rows >= 1; --rows) {
    planes.block_rows = rows;
    if (pass.Bytes() > bytes) continue;
    const int64_t vectors =
        planes.rows / rows * vectors_of(rows) + vectors_of(planes.rows % rows);
    if (best != 0 && vectors >= least) continue;
    least = vectors;
    best = rows;
  }
  if (best == 0) return false;
  planes.block_rows = best;
  const int64_t chunk = conv::ChunkImages(pass.out_height * pass.out_width);
  while (best == planes.rows && pass.vectors() < kGoodVectors &&
         pass.images < kMostImages &&
         (pass.plain || chunk % (2 * pass.images) == 0)) {
    pass.images *= 2;
    if (pass.Bytes() <= bytes) continue;
    pass.images /= 2;
    break;
  }
  return true;
}

// The block of outputs with the larger tiles: weights are packed for each.
inline bool SetBlock(size_t bytes, DirectPass& pass) {
  pass.block = kTileOutputs;
  if (!SetTiles(bytes, pass)) return false;
  if (pass.outputs <= kTileOutputs) return true;
  DirectPass larger = pass;
  larger.block = 2 * kTileOutputs;
  if (SetTiles(bytes, larger) && larger.vectors() >= pass.vectors()) {
    pass = larger;
  }
  return true;
}

// What output rows 2u + a, or columns, read: rows u + [first, last].
struct Reach {
  int64_t first = 0;
  int64_t last = 0;
};
inline Reach GradReach(int64_t kernel, int64_t stride, int64_t padding) {
  Reach reach = {kernel, -kernel};
  for (int64_t a = 0; a < stride; ++a) {
    for (int64_t k = 0; k < kernel; ++k) {
      if ((a + padding + k) % stride != 0) continue;
      reach.first = std::min(reach.first, (a + padding - k) / stride);
      reach.last = std::max(reach.last, (a + padding - k) / stride);
    }
  }
  return reach;
}

// False where the stride is another one, or `bytes` of scratch are not enough.
inline bool MakeDirectPass(const Conv2dShape& s, bool forward, size_t bytes,
                           DirectPass& pass) {
  if (s.stride > 2) return false;
  pass.shape = s;
  pass.forward = forward;
  if (forward) {
    pass.planes = ForwardPlanes(s);
    pass.channels = s.in_channels;
    pass.outputs = s.out_channels;
    pass.out_height = s.out_height();
    pass.out_width = s.out_width();
  } else {
    const Reach h = GradReach(s.kernel_h, s.stride, s.padding);
    const Reach w = GradReach(s.kernel_w, s.stride, s.padding);
    pass.planes.src_height = s.out_height();
    pass.planes.src_width = s.out_width();
    pass.planes.count_w = w.last - w.first + 1;
    pass.planes.pad_h = -h.first;
    pass.planes.pad_w = -w.first;
    pass.planes.halo = h.last - h.first;
    pass.planes.rows = conv::CeilDiv(s.in_height, s.stride);
    pass.planes.cols = conv::CeilDiv(s.in_width, s.stride);
    pass.channels = s.out_channels;
    pass.outputs = s.in_channels;
    pass.out_height = s.in_height;
    pass.out_width = s.in_width;
    pass.phases = s.stride;
  }
  // Packing weights of one tap is cheap: a tile in the first-level cache is
  // worth more than a large one.
  return (forward && pass.taps() == 1 &&
          SetBlock(std::min(bytes, kCachedBytes), pass)) ||
         SetBlock(bytes, pass);
}

struct DirectTap {
  int32_t offset;  // from a position to what the tap reads, in its pair
  int32_t weight;  // index among the kernel_h * kernel_w weights of a pair
};

// Where the results of a block of outputs go, positions of one image one after
// the other: f32 sums, or the tensor in bf16.
struct DirectTarget {
  float* sums;
  uint16_t* to;    // where there are no sums
  int64_t output;  // elements from one output to the next
  int64_t image;   // and from one image
};

// Writes the taps of phase (a, b) and returns how many they are.
inline int64_t ListTaps(const DirectPass& pass, int64_t a, int64_t b,
                        DirectTap* taps) {
  const Conv2dShape& s = pass.shape;
  const Planes& planes = pass.planes;
  int64_t count = 0;
  for (int64_t kh = 0; kh < s.kernel_h; ++kh) {
    if (!pass.forward && (a + s.padding + kh) % s.stride != 0) continue;
    for (int64_t kw = 0; kw < s.kernel_w; ++kw) {
      if (!pass.forward && (b + s.padding + kw) % s.stride != 0) continue;
      int64_t offset = 0;
      if (pass.forward) {
        offset = ForwardOffset(planes, kh, kw);
      } else {
        const int64_t row = (a + s.padding - kh) / s.stride + planes.pad_h;
        const int64_t col = (b + s.padding - kw) / s.stride + planes.pad_w;
        offset = planes.plane_at(0, col) + row * planes.cols;
      }
      taps[count++] = {static_cast<int32_t>(offset),
                       static_cast<int32_t>(kh * s.kernel_w + kw)};
    }
  }
  return count;
}

// Forward pass or gradient of the input, if all tensors are bf16 and the shape
// has this way in `bytes` of scratch per thread; else false.
// REQUIRES: dot products are on.
bool RunDirect(const Conv2dShape& shape, bool forward, size_t bytes,
               int64_t images, const Conv2dInput& input,
               const ConstTensor& weights, const conv::Sink& sink,
               RowWriter write_row, const KernelContext& context);

}  // namespace thimble::kernels::dot
