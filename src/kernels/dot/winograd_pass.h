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
inline constexpr int64_t kMostGradStrips = 8;

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
// of channels; it passes over all strips, up to `strips` at a time. None of the
// three decides bits.
struct WinogradWeightPass {
  Conv2dShape shape;
  conv::StripGrid grid;  // of x
  int64_t chunk = 0;
  int64_t block = 0;
  int64_t strips = 0;

  int64_t units() const {
    return conv::CeilDiv(shape.in_channels, chunk) *
           conv::CeilDiv(shape.out_channels, block);
  }
  // A thread's scratch, in words or floats: sums; grad_y with outputs beside
  // each other (afterwards, the taps of one channel); a slice of it, and of a
  // few channels of x, transformed.
  int64_t sum_floats() const { return chunk * GradSumStride(block); }
  int64_t grad_words() const { return strips * conv::kStripPixels / 2 * block; }
  int64_t slice_words() const { return grad_words(); }
  int64_t tile_words() const { return 4 * kGradChannels * strips * kTiles / 2; }
  size_t Bytes() const {
    return 4 * static_cast<size_t>(sum_floats() + grad_words() + slice_words() +
                                   tile_words());
  }
};

// What the parts of the products of one output and one channel of a strip cost
// beside them, in about 1/1024 of a CPU's cycle. As measured on Zen 4.
inline int64_t CostOf(const WinogradWeightPass& pass) {
  constexpr int64_t kInput = 50;  // of a strip of one channel; for the block
  constexpr int64_t kGrad = 40;   // of one output; for the chunk
  constexpr int64_t kSums = 3;    // for all strips
  const int64_t scale = 1024;
  return scale * kInput / pass.block + scale * kGrad / pass.chunk +
         scale * kSums / pass.strips;
}

// The cheapest in `bytes`, with blocks of at most `outputs` and chunks of at
// most `channels`; false where there is none. Without a `least` of two units,
// two threads would have work for one.
inline bool FindWeightPass(size_t bytes, int64_t outputs, int64_t channels,
                           int64_t least, WinogradWeightPass& best) {
  int64_t least_cost = 0;
  WinogradWeightPass pass = best;
  for (pass.block = kOutputBlock; pass.block <= outputs; pass.block *= 2) {
    if (pass.shape.out_channels % pass.block != 0) continue;
    for (int64_t n = 1; n <= channels / kGradChannels; ++n) {
      pass.chunk = conv::RoundUp(conv::CeilDiv(channels, n), kGradChannels);
      if (pass.units() < least) continue;
      pass.strips = kMostGradStrips;
      while (pass.strips > 0 && pass.Bytes() > bytes) --pass.strips;
      if (pass.strips == 0) continue;
      const int64_t cost = CostOf(pass);
      if (least_cost != 0 && cost >= least_cost) continue;
      least_cost = cost;
      best = pass;
    }
  }
  return least_cost != 0;
}

// False unless there is such a way both for a gradient that is stored and for
// one that is handed over in pieces: both have the same bits.
inline bool MakeWinogradWeightPass(const Conv2dShape& s,
                                   const conv::WeightScratch& scratch,
                                   bool in_pieces, WinogradWeightPass& pass) {
  if (!conv::IsWinograd(s) || s.out_channels % kOutputBlock != 0) return false;
  pass.shape = s;
  pass.grid = {s.in_channels, s.in_height, s.in_width};
  WinogradWeightPass pieces = pass;
  // Blocks and chunks are no larger than a region.
  const GradRegions regions = conv::WeightRegions(s);
  if (!FindWeightPass(scratch.stored, 2 * kOutputBlock, s.in_channels, 2,
                      pass) ||
      !FindWeightPass(scratch.in_pieces, kOutputBlock, regions.columns() / 9, 1,
                      pieces)) {
    return false;
  }
  if (in_pieces) pass = pieces;
  return true;
}

}  // namespace thimble::kernels::dot
