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
#include "kernels/dot/source-inl.h"
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

// Where there is nothing, a prologue must not make something of it.
THIMBLE_DOT_INLINE Words ActivatedLine(const SourceRow& row, Words line,
                                       LaneMask there) {
  if (!row.prologue) return line;
  return Masked(there,
                Zip(Activated(row, Even(line)), Activated(row, Odd(line))));
}

// One line of channels [first, first + channels).
template <int kCols>
void FillLine(const SparsePass& pass, const Conv2dInput& input,
              const LineSource& from, int64_t first, int64_t channels,
              std::byte* to) {
  const int64_t pitch = pass.tile.lines * dot::kLineBytes;
  const int64_t plane = pass.tile.plane_bytes(pass.chunk);
  const LaneMask there = MaskOf(from.lanes);
  for (int64_t c = first; c < first + channels; ++c, to += pitch) {
    const SourceRow row(input, c);
    if (pass.step == 1) {
      Store(ActivatedLine(row, LoadLine(from, kCols, c), there), to);
      continue;
    }
    Words first_line, second_line;
    LoadTwoLines(from, kCols, c, first_line, second_line);
    Store(ActivatedLine(row, LowHalves(first_line, second_line), there), to);
    if (pass.tile.planes == 1) continue;
    const Words odd =
        LowHalves(ShiftedHalves(first_line), ShiftedHalves(second_line));
    Store(ActivatedLine(row, odd, there), to + plane);
  }
}

// Channels [first, first + channels) of the segments, and the lines of zeros.
void FillSparseTile(const SparsePass& pass, const Conv2dInput& input,
                    const SparseSegments& segments, int64_t first,
                    int64_t channels, std::byte* tile) {
  const uint16_t* data = input.x.halves(DType::kBF16);
  for (int64_t line = 0; line < pass.tile.lines; ++line) {
    const LineSource from = SourceOf(pass, data, segments, line);
    std::byte* to = tile + line * dot::kLineBytes;
    if (pass.cols == 32) {
      FillLine<32>(pass, input, from, first, channels, to);
    } else if (pass.cols == 16) {
      FillLine<16>(pass, input, from, first, channels, to);
    } else {
      FillLine<8>(pass, input, from, first, channels, to);
    }
  }
  std::memset(tile + pass.tile.bytes(pass.chunk), 0,
              static_cast<size_t>(pass.tile.height * dot::kLineBytes));
}

}  // namespace
THIMBLE_DOT_END

#endif  // per-build include guard
