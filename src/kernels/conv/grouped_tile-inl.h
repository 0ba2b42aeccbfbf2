// SPDX-License-Identifier: Apache-2.0
//
// Tiles of the grouped convolution: source rows into scratch. Included once per
// SIMD target, after <hwy/highway.h>; hence no `#pragma once`.
#if defined(THIMBLE_KERNELS_CONV_GROUPED_TILE_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef THIMBLE_KERNELS_CONV_GROUPED_TILE_INL_H_
#undef THIMBLE_KERNELS_CONV_GROUPED_TILE_INL_H_
#else
#define THIMBLE_KERNELS_CONV_GROUPED_TILE_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstdint>

#include "kernels/conv/grouped.h"
#include "kernels/conv/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3

// Rows of positions [first, first + rows) of `images` images from `image` on.
// With pair > images, the rest of each vector is zero.
struct TileSpan {
  int64_t image = 0;
  int64_t images = 1;
  int64_t pair = 1;
  int64_t first = 0;
  int64_t rows = 0;
};

using Eight = hn::CappedTag<float, 8>;

// Source rows [begin, end) are those in the tile, where they are not split.
struct SourceRows {
  int64_t begin;
  int64_t end;
};
HWY_INLINE SourceRows RowsOf(const conv::GroupedPass& pass,
                             const TileSpan& span) {
  return {HWY_MAX(int64_t{0}, span.first - pass.above),
          HWY_MIN(pass.src_height, span.first + span.rows + pass.below)};
}

// Rows of channels are too short for hardware to see streams in them.
template <typename T>
HWY_INLINE void PrefetchRows(const T* from, int64_t n) {
  constexpr int64_t kLine = 64 / static_cast<int64_t>(sizeof(T));
  for (int64_t i = 0; i < n; i += kLine) hwy::Prefetch(from + i);
}
constexpr int64_t kChannelsAhead = 4;

// Calls copy(element offset, channel, where it goes in the tile) for the rows
// of every channel and image.
template <typename F>
HWY_INLINE void ForEachPlane(const conv::GroupedPass& pass,
                             const TileSpan& span, int64_t first_row,
                             float* tile, const F& copy) {
  const int64_t channel_floats = pass.channel_rows() * pass.row_floats();
  // Images inside: they fill the same lines of the tile.
  for (int64_t c = 0; c < pass.channels; ++c) {
    for (int64_t p = 0; p < span.images; ++p) {
      const int64_t plane = (span.image + p) * pass.channels + c;
      copy((plane * pass.src_height + first_row) * pass.src_width, c,
           tile + c * channel_floats + p * pass.width);
    }
  }
}

// Rows of 8 beside those of another image.
template <typename T, Prologue kPrologue>
void LoadPaired(const conv::GroupedPass& pass, const Conv2dInput& input,
                const TileSpan& span, float* tile) {
  const Eight d;
  const SourceRows rows = RowsOf(pass, span);
  const auto* data = input.x.As<T>();
  ForEachPlane(pass, span, rows.begin, tile,
               [&](int64_t offset, int64_t c, float* to) HWY_ATTR {
                 const auto scale = Coefficient<kPrologue>(d, input.scale, c);
                 const auto shift = Coefficient<kPrologue>(d, input.shift, c);
                 const T* from = data + offset;
                 for (int64_t r = rows.begin; r < rows.end;
                      ++r, from += 8, to += 16) {
                   const auto v = LoadAs(d, from);
                   hn::StoreU(Activate<kPrologue>(d, v, scale, shift), d, to);
                 }
               });
}

// 16 columns as 8 even and 8 odd ones.
template <Prologue kPrologue, typename T>
HWY_INLINE void SplitSixteen(const T* from, hn::Vec<Eight> scale,
                             hn::Vec<Eight> shift, float* of_even,
                             float* of_odd) {
  const Eight d;
  const auto low = Activate<kPrologue>(d, LoadAs(d, from), scale, shift);
  const auto high = Activate<kPrologue>(d, LoadAs(d, from + 8), scale, shift);
  hn::StoreU(hn::ConcatEven(d, high, low), d, of_even);
  hn::StoreU(hn::ConcatOdd(d, high, low), d, of_odd);
}

// Every second row of a stride-2 source. Rows go `pitch` apart; kOdd: odd
// columns are wanted too.
template <Prologue kPrologue, bool kOdd, typename T>
HWY_INLINE void SplitRows(const Conv2dInput& input, int64_t c,
                          const T* HWY_RESTRICT from, int64_t src_width,
                          int64_t rows, int64_t pitch,
                          float* HWY_RESTRICT of_even,
                          float* HWY_RESTRICT of_odd) {
  const Eight d;
  const auto scale = Coefficient<kPrologue>(d, input.scale, c);
  const auto shift = Coefficient<kPrologue>(d, input.shift, c);
  HWY_ALIGN float unused[8];
  for (int64_t r = 0; r < rows; ++r, from += 2 * src_width) {
    for (int64_t i = 0; 2 * i < src_width; i += 8) {
      SplitSixteen<kPrologue>(from + 2 * i, scale, shift,
                              of_even + r * pitch + i,
                              kOdd ? of_odd + r * pitch + i : unused);
    }
  }
}

// Planes by parity of rows and columns; for a 1x1 kernel the even ones alone.
template <typename T, Prologue kPrologue>
void LoadSplit(const conv::GroupedPass& pass, const Conv2dInput& input,
               const TileSpan& span, float* tile) {
  const int64_t pitch = pass.row_floats();
  const int64_t width = pass.src_width;
  const int64_t odd = (pass.block_rows + 1) * pitch;
  const int64_t even = pass.block_rows * pitch;
  const int64_t skipped = span.first == 0 ? 1 : 0;  // row -1
  const auto* data = input.x.As<T>();
  ForEachPlane(pass, span, 2 * span.first, tile,
               [&](int64_t offset, int64_t c, float* to) HWY_ATTR {
                 const T* from = data + offset;
                 PrefetchRows(from + kChannelsAhead * pass.src_height * width,
                              2 * span.rows * width);
                 if (pass.taps() == 1) {
                   SplitRows<kPrologue, false>(input, c, from, width, span.rows,
                                               pitch, to, nullptr);
                   return;
                 }
                 SplitRows<kPrologue, true>(input, c, from, width, span.rows,
                                            pitch, to + 2 * odd + even,
                                            to + 2 * odd);
                 from += (2 * skipped - 1) * width;
                 to += skipped * pitch;
                 SplitRows<kPrologue, true>(input, c, from, width,
                                            span.rows + 1 - skipped, pitch,
                                            to + odd, to);
               });
}

// Planes are a power of two apart: rows of many channels meet in the same sets
// of the L1 cache. With vectors of 8 lanes there are too many loads to wait for
// the L2 cache.
HWY_INLINE bool SharesSets() { return LaneCount() == 8; }

// Asks for the source rows of a span that comes later, into the L2 cache: rows
// of many channels are streams too short for hardware to see.
void PrefetchSpan(const conv::GroupedPass& pass, const Conv2dInput& input,
                  const TileSpan& span) {
  if (pass.channels < 32) return;  // they are streams enough
  const int64_t begin = span.first * pass.step;
  const int64_t end =
      HWY_MIN(pass.src_height, (span.first + span.rows) * pass.step + 1);
  const auto bytes = static_cast<int64_t>(
      BytesFor(input.x.dtype(), (end - begin) * pass.src_width));
  for (int64_t p = 0; p < span.images * pass.channels; ++p) {
    const int64_t row =
        (span.image * pass.channels + p) * pass.src_height + begin;
    const auto* from = static_cast<const std::byte*>(
        input.x.From(row * pass.src_width).data());
    for (int64_t i = 0; i < bytes; i += 64) {
      __builtin_prefetch(from + i, 0, 2);
    }
  }
}

void LoadGroupedTile(const conv::GroupedPass& pass, const Conv2dInput& input,
                     const TileSpan& span, float* tile) {
  if (span.images < span.pair) {
    const int64_t all = pass.channels * pass.channel_rows() * pass.row_floats();
    for (int64_t i = 0; i < all; ++i) tile[i] = 0.0f;
  }
  if (pass.step == 1 && span.pair == 1) {
    const SourceRows rows = RowsOf(pass, span);
    ForEachPlane(pass, span, rows.begin, tile,
                 [&](int64_t offset, int64_t c, float* to) HWY_ATTR {
                   ReadRow(input, c, offset,
                           (rows.end - rows.begin) * pass.width, to);
                 });
    return;
  }
  WithInput(input, [&](auto type, auto prologue) HWY_ATTR {
    using T = decltype(type);
    constexpr Prologue kPrologue = decltype(prologue)::value;
    if (pass.step == 1) {
      LoadPaired<T, kPrologue>(pass, input, span, tile);
    } else {
      LoadSplit<T, kPrologue>(pass, input, span, tile);
    }
  });
}

#endif  // 8 lanes

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
