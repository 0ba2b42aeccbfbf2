// SPDX-License-Identifier: Apache-2.0
//
// Lines of a tile (sparse_pass.h), activated and rounded. Included once per
// build, by way of foreach_build.h; hence no `#pragma once`.
#if defined(THIMBLE_KERNELS_DOT_SPARSE_TILE_INL_H_) == \
    defined(THIMBLE_DOT_TOGGLE)
#ifdef THIMBLE_KERNELS_DOT_SPARSE_TILE_INL_H_
#undef THIMBLE_KERNELS_DOT_SPARSE_TILE_INL_H_
#else
#define THIMBLE_KERNELS_DOT_SPARSE_TILE_INL_H_
#endif

#include "kernels/dot/halves-inl.h"
#include "kernels/dot/lanes-inl.h"
#include "kernels/dot/sparse_lanes-inl.h"

THIMBLE_DOT_BEGIN
namespace {

using dot::SparsePass;
using dot::SparseSegments;

// What is read where a segment has no row, for 32 positions of step 2.
alignas(64) constexpr uint16_t kZeroRow[2 * dot::kLinePixels] = {};

// Where the segments of a line begin in channel 0, and which pairs of positions
// are there.
struct LineSource {
  const uint16_t* at[dot::kMostSegments];
  int64_t channel[dot::kMostSegments];  // from one channel to the next, or 0
  uint32_t lanes;
};

inline LineSource SourceOf(const SparsePass& pass, const uint16_t* data,
                           const SparseSegments& segments, int64_t line) {
  LineSource source;
  source.lanes = 0;
  const int64_t pixels = pass.src_height * pass.src_width;
  const int64_t pairs = pass.cols / 2;
  for (int64_t g = 0; g < dot::kMostSegments; ++g) {
    source.at[g] = kZeroRow;
    source.channel[g] = 0;
    if (g >= segments.count) continue;
    const int64_t row = pass.step * segments.row[g] + pass.tile.row_of[line];
    if (row < 0 || row >= pass.src_height) continue;
    source.at[g] = data + segments.image[g] * pass.channels * pixels +
                   row * pass.src_width;
    source.channel[g] = pixels;
    source.lanes |= ((1u << pairs) - 1) << (g * pairs);
  }
  return source;
}

// The 32 positions of step 1, or the vectors that even and odd ones of step 2
// are in, of the channel whose first one is `c` from channel 0.
THIMBLE_DOT_INLINE Words LoadLine(const LineSource& from, int64_t cols,
                                  int64_t c) {
  const auto at = [&](int64_t g) { return from.at[g] + c * from.channel[g]; };
  if (cols == 32) return LoadWords(at(0));
  if (cols == 16) return LoadHalves(at(0), at(1));
  return LoadQuarters(at(0), at(1), at(2), at(3));
}
THIMBLE_DOT_INLINE void LoadTwoLines(const LineSource& from, int64_t cols,
                                     int64_t c, Words& first, Words& second) {
  const auto at = [&](int64_t g) { return from.at[g] + c * from.channel[g]; };
  if (cols == 8) {
    first = LoadHalves(at(0), at(1));
    second = LoadHalves(at(2), at(3));
  } else {
    first = LoadWords(at(0));
    second = LoadWords(cols == 16 ? at(1) : at(0) + 2 * kLanes);
  }
}

// Of one channel. Where there is nothing, a prologue must not make something of
// it.
template <bool kPrologue>
struct Activation {
  THIMBLE_DOT_INLINE Words Of(const Activation& to, Words line,
                              LaneMask there) {
    if constexpr (!kPrologue) return line;
    Floats even = FusedMulAdd(Even(line), to.scale, to.shift);
    Floats odd = FusedMulAdd(Odd(line), to.scale, to.shift);
    if (to.relu) {
      even = AtLeast(ZeroFloats(), even);
      odd = AtLeast(ZeroFloats(), odd);
    }
    return Masked(there, Zip(even, odd));
  }
  Floats scale;
  Floats shift;
  bool relu;
};

// Lines of step 1 of one channel.
template <int kCols, bool kPrologue>
THIMBLE_DOT_INLINE void FillLines(const SparsePass& pass,
                                  const Activation<kPrologue>& to,
                                  const LineSource* lines, int64_t c,
                                  std::byte* tile) {
  for (int64_t l = 0; l < pass.tile.lines; ++l) {
    const LineSource& from = lines[l];
    std::byte* at = tile + l * dot::kLineBytes;
    if (from.lanes == 0) {
      Store(ZeroWords(), at);
    } else {
      Store(Activation<kPrologue>::Of(to, LoadLine(from, kCols, c),
                                      MaskOf(from.lanes)),
            at);
    }
  }
}

// Lines of step 2 of one channel, in one or two planes.
template <int kCols, bool kPrologue>
THIMBLE_DOT_INLINE void FillPlanes(const SparsePass& pass,
                                   const Activation<kPrologue>& to,
                                   const LineSource* lines, int64_t c,
                                   std::byte* tile) {
  const int64_t plane = pass.tile.plane_bytes(pass.chunk);
  for (int64_t l = 0; l < pass.tile.lines; ++l) {
    const LineSource& from = lines[l];
    const LaneMask there = MaskOf(from.lanes);
    std::byte* at = tile + l * dot::kLineBytes;
    Words first, second;
    LoadTwoLines(from, kCols, c, first, second);
    Store(Activation<kPrologue>::Of(to, LowHalves(first, second), there), at);
    if (pass.tile.planes == 1) continue;
    const Words odd = LowHalves(ShiftedHalves(first), ShiftedHalves(second));
    Store(Activation<kPrologue>::Of(to, odd, there), at + plane);
  }
}

template <int kCols, bool kPrologue>
void FillChannels(const SparsePass& pass, const Conv2dInput& input,
                  const LineSource* lines, int64_t first, int64_t channels,
                  std::byte* tile) {
  const int64_t pitch = pass.tile.lines * dot::kLineBytes;
  Activation<kPrologue> to;
  to.relu = input.relu;
  for (int64_t c = first; c < first + channels; ++c, tile += pitch) {
    if constexpr (kPrologue) {
      to.scale = SetFloats(input.scale[c]);
      to.shift = SetFloats(input.shift[c]);
    }
    if (pass.step == 1) {
      FillLines<kCols, kPrologue>(pass, to, lines, c, tile);
    } else {
      FillPlanes<kCols, kPrologue>(pass, to, lines, c, tile);
    }
  }
}

template <int kCols>
void FillWith(const SparsePass& pass, const Conv2dInput& input,
              const LineSource* lines, int64_t first, int64_t channels,
              std::byte* tile) {
  if (input.scale != nullptr) {
    FillChannels<kCols, true>(pass, input, lines, first, channels, tile);
  } else {
    FillChannels<kCols, false>(pass, input, lines, first, channels, tile);
  }
}

// Channels [first, first + channels) of the segments, and the lines of zeros.
void FillSparseTile(const SparsePass& pass, const Conv2dInput& input,
                    const SparseSegments& segments, int64_t first,
                    int64_t channels, std::byte* tile) {
  const uint16_t* data = input.x.halves(DType::kBF16);
  LineSource lines[dot::kMostLines];
  for (int64_t l = 0; l < pass.tile.lines; ++l) {
    lines[l] = SourceOf(pass, data, segments, l);
  }
  if (pass.cols == 32) {
    FillWith<32>(pass, input, lines, first, channels, tile);
  } else if (pass.cols == 16) {
    FillWith<16>(pass, input, lines, first, channels, tile);
  } else {
    FillWith<8>(pass, input, lines, first, channels, tile);
  }
  std::memset(tile + pass.tile.bytes(pass.chunk), 0,
              static_cast<size_t>(pass.tile.height * dot::kLineBytes));
}

}  // namespace
THIMBLE_DOT_END

#endif  // per-build include guard
