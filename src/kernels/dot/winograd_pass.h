// SPDX-License-Identifier: Apache-2.0
//
// How the passes of dot/winograd.h divide their work, and their scratch: pure
// functions of the shape.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/conv/conv.h"
#include "kernels/conv/tile.h"
#include "kernels/conv/weight_units.h"
#include "kernels/conv/winograd.h"
#include "kernels/dot/winograd_kernels.h"

namespace thimble::kernels::dot {

inline constexpr int64_t kTiles = 16;        // of a strip
inline constexpr int64_t kOutputBlock = 16;  // outputs whose weights are
                                             // transformed together
inline constexpr int64_t kMostStrips = 16;   // that are worked on together

// Words that `channels` transformed channels of a tile or of an output take: a
// word is a pair of channels.
inline int64_t WordsOf(int64_t channels) {
  return conv::kSlices * 4 * (channels / 2);
}

// As conv::WinogradPass, with all slices of a chunk of channels in scratch.
struct WinogradPass {
  conv::StripGrid grid;  // of what is summed over
  bool forward = true;
  int64_t outputs = 0;
  int64_t channel_weights = 0;  // from one channel's weights to the next
  int64_t output_weights = 0;   // and from one output's
  int64_t chunk = 0;            // channels that are in scratch
  int64_t group = 0;            // outputs whose weights are
  int64_t strips = 0;           // whose sums are

  int64_t groups() const { return conv::CeilDiv(outputs, group); }
  // A group's weights are transformed once.
  bool resident() const { return chunk >= grid.channels; }
  int64_t weight_words() const { return group * WordsOf(chunk); }
  int64_t tile_words() const { return kTiles * WordsOf(chunk); }
  int64_t sum_floats() const { return strips * group * conv::kStripPixels; }
  int64_t line_floats() const { return strips * conv::kStripPixels; }
  size_t Bytes() const {
    return 4 *
           static_cast<size_t>(weight_words() + tile_words() + sum_floats() +
                               line_floats() + conv::PartialFloats(group));
  }
};

// What the parts of one output of one strip cost beside its products, in about
// the cycles of a CPU with one product of vectors per cycle (8 * channels of
// them). As measured on Zen 4.
inline int64_t CostOf(const WinogradPass& pass) {
  constexpr int64_t kPairInput = 110;    // a strip; for the group
  constexpr int64_t kPairWeights = 160;  // kOutputBlock outputs
  constexpr int64_t kChunkSums = 30;
  constexpr int64_t kRow = 48;  // writing; neighbours are one row
  const int64_t scale = 1024;
  const int64_t pairs = pass.grid.channels / 2;
  int64_t cost = scale * kPairInput * pairs / pass.group;
  if (!pass.resident()) {
    cost += scale * kPairWeights * pairs / kOutputBlock / pass.strips;
  }
  cost += scale * kRow / std::min<int64_t>(pass.strips, 4);
  return cost +
         scale * kChunkSums * conv::CeilDiv(pass.grid.channels, pass.chunk);
}

// As many strips as fit and are of use: weights that are there need not be
// shared by many. False where not even one fits.
inline bool SetStrips(WinogradPass& pass, size_t bytes) {
  pass.strips = 0;
  const size_t others = pass.Bytes();
  pass.strips = 1;
  const size_t strip = pass.Bytes() - others;
  if (pass.Bytes() > bytes) return false;
  const int64_t most = pass.resident() ? 4 : kMostStrips;
  pass.strips = std::min(most, static_cast<int64_t>((bytes - others) / strip));
  return true;
}

// The cheapest in `bytes`; false where the shape has no such way.
inline bool MakeWinogradPass(const Conv2dShape& s, bool forward, size_t bytes,
                             WinogradPass& best) {
  if (!conv::IsWinograd(s)) return false;
  // More would not stay in the cache.
  bytes = std::min(bytes, static_cast<size_t>(conv::kWinogradBytes));
  WinogradPass pass;
  pass.forward = forward;
  pass.grid = {forward ? s.in_channels : s.out_channels, s.in_height,
               s.in_width};
  pass.outputs = forward ? s.out_channels : s.in_channels;
  pass.channel_weights = forward ? 9 : s.in_channels * 9;
  pass.output_weights = forward ? s.in_channels * 9 : 9;
  if (pass.outputs % kOutputBlock != 0) return false;
  int64_t least = 0;
  for (int64_t n = 1; n <= pass.outputs / kOutputBlock; n *= 2) {
    pass.group = conv::RoundUp(conv::CeilDiv(pass.outputs, n), kOutputBlock);
    for (int64_t chunks = 1; chunks <= 16; chunks *= 2) {
      pass.chunk = conv::RoundUp(conv::CeilDiv(pass.grid.channels, chunks), 2);
      if (!SetStrips(pass, bytes)) continue;
      const int64_t cost = CostOf(pass);
      if (least != 0 && cost >= least) continue;
      least = cost;
      best = pass;
    }
  }
  return least != 0;
}

// As conv::WinogradWeightPass: a unit of work is a block of outputs and a chunk
// of channels; it passes over all strips, `strips` at a time.
struct WinogradWeightPass {
  Conv2dShape shape;
  conv::StripGrid grid;  // of x
  int64_t chunk = 0;
  int64_t block = 0;
  int64_t strips = 0;

  int64_t chunks() const { return conv::CeilDiv(shape.in_channels, chunk); }
  int64_t blocks() const { return shape.out_channels / block; }
  // A thread's scratch, in words or floats: sums; grad_y with outputs beside
  // each other; a slice of it, and of x, transformed; a row of grad_w, or the
  // taps of one channel.
  int64_t sum_floats() const { return chunk * GradSumStride(block); }
  int64_t grad_words() const { return strips * conv::kStripPixels / 2 * block; }
  int64_t slice_words() const { return grad_words(); }
  int64_t tile_words() const { return 4 * chunk * strips * kTiles / 2; }
  int64_t row_floats() const {
    return std::max(9 * block, conv::RoundUp(chunk * 9, conv::kMostLanes));
  }
  size_t Bytes() const {
    return 4 * static_cast<size_t>(sum_floats() + grad_words() + slice_words() +
                                   tile_words() + row_floats());
  }
};

// The same sums for a gradient that is handed over in pieces: blocks are no
// larger than a region.
inline WinogradWeightPass InPieces(WinogradWeightPass pass) {
  pass.block = kOutputBlock;
  return pass;
}

// How many strips are summed up at a time decides bits: as many as fit whether
// the gradient is stored or not.
inline bool MakeWinogradWeightPass(const Conv2dShape& s,
                                   const conv::WeightScratch& scratch,
                                   WinogradWeightPass& pass) {
  if (!conv::IsWinograd(s) || s.out_channels % 16 != 0) return false;
  pass.shape = s;
  pass.grid = {s.in_channels, s.in_height, s.in_width};
  pass.block = s.out_channels % 32 == 0 ? 32 : 16;
  // Two chunks, where there is one block of outputs, are work for two threads.
  const int64_t most = s.in_channels >= 64 ? 32 : 16;
  const int64_t chunks =
      std::max<int64_t>(2, conv::CeilDiv(s.in_channels, most));
  pass.chunk = conv::RoundUp(conv::CeilDiv(s.in_channels, chunks), 8);
  const auto fits = [&] {
    return pass.Bytes() <= scratch.stored &&
           InPieces(pass).Bytes() <= scratch.in_pieces;
  };
  pass.strips = 8;
  while (pass.strips > 1 && !fits()) --pass.strips;
  return fits();
}

}  // namespace thimble::kernels::dot
