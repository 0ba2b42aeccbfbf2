// SPDX-License-Identifier: Apache-2.0
//
// Copies between planar images and the padded tiles of the convolution kernels.
// Included once per SIMD target, after <hwy/highway.h>; hence no `#pragma
// once`.
#if defined(THIMBLE_KERNELS_CONV_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef THIMBLE_KERNELS_CONV_TILE_INL_H_
#undef THIMBLE_KERNELS_CONV_TILE_INL_H_
#else
#define THIMBLE_KERNELS_CONV_TILE_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "kernels/conv/rows-inl.h"
#include "kernels/conv/tile.h"
#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

// The first n of Lanes(d) or more elements at p, zeros past them.
HWY_INLINE V LoadUpTo(const float* p, int64_t n) {
  const D d;
  if (n >= LaneCount()) return hn::LoadU(d, p);
  return n <= 0 ? hn::Zero(d) : LoadFirst(d, p, static_cast<size_t>(n));
}

// to[i] = from[i] for i < n. Rows are short, so this beats a call of memcpy.
HWY_INLINE void CopyRow(const float* from, int64_t n, float* to) {
  const D d;
  const int64_t lanes = LaneCount();
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(hn::LoadU(d, from + i), d, to + i);
  }
  const auto rest = static_cast<size_t>(n - i);
  if (rest > 0) StoreFirst(LoadFirst(d, from + i, rest), d, to + i, rest);
}

// As CopyRow, but writes whole vectors: up to a vector past the end.
HWY_INLINE void CopyRowAndPast(const float* from, int64_t n, float* to) {
  const int64_t lanes = LaneCount();
  for (int64_t i = 0; i < n; i += lanes) {
    hn::StoreU(LoadUpTo(from + i, n - i), D(), to + i);
  }
}

HWY_INLINE void ZeroRow(int64_t n, float* to) {
  for (int64_t i = 0; i < n; ++i) to[i] = 0.0f;
}

// Columns first, first + 2, … of a row of `width`, n of them and up to a vector
// past them. They are taken from pairs that begin at even columns.
HWY_INLINE void CopyEverySecondAndPast(const float* row, int64_t width,
                                       int64_t first, int64_t n, float* to) {
  const D d;
  const int64_t lanes = LaneCount();
  const bool odd = first % 2 != 0;
  int64_t col = first - first % 2;
  for (int64_t i = 0; i < n; i += lanes, col += 2 * lanes) {
    const V low = LoadUpTo(row + col, width - col);
    const V high = LoadUpTo(row + col + lanes, width - col - lanes);
    hn::StoreU(odd ? hn::ConcatOdd(d, high, low) : hn::ConcatEven(d, high, low),
               d, to + i);
  }
}

// n columns of a row, `step` apart, from `first` on, and up to a vector past.
HWY_INLINE void CopyColumns(const float* row, int64_t width, int64_t step,
                            int64_t first, int64_t n, float* to) {
  if (step == 1) {
    CopyRowAndPast(row + first, n, to);
  } else if (step == 2) {
    CopyEverySecondAndPast(row, width, first, n, to);
  } else {
    for (int64_t i = 0; i < n; ++i) to[i] = row[first + i * step];
  }
}

// Plane (a, b) of one channel, whose elements begin at `source` of the input,
// for `rows` rows of positions from first_row on. `line` holds a row of it.
// Writes upwards only: what goes past the end of a row is overwritten by the
// next one, and at the end of the tile it meets the slack.
void LoadPlane(const conv::Tile& tile, const Conv2dInput& input,
               int64_t channel, int64_t source, int64_t a, int64_t b,
               int64_t first_row, int64_t rows, float* line, float* plane) {
  const int64_t step = tile.step;
  // Columns [begin, end) of the plane exist in the source.
  const int64_t before = tile.pad_w - b;
  const int64_t after = tile.src_width + tile.pad_w - b;
  const int64_t begin =
      HWY_MIN(tile.pitch, before <= 0 ? 0 : conv::CeilDiv(before, step));
  const int64_t end = HWY_MAX(
      begin, HWY_MIN(tile.pitch, after <= 0 ? 0 : conv::CeilDiv(after, step)));
  float* to = plane;
  for (int64_t i = 0; i < rows + tile.halo_h; ++i, to += tile.pitch) {
    const int64_t row = step * (first_row + i) + a - tile.pad_h;
    if (row < 0 || row >= tile.src_height) {
      ZeroRow(tile.pitch, to);
      continue;
    }
    ZeroRow(begin, to);
    if (end > begin) {
      const float* from = RowValues(
          input, channel, source + row * tile.src_width, tile.src_width, line);
      CopyColumns(from, tile.src_width, step, step * begin + b - tile.pad_w,
                  end - begin, to + begin);
    }
    ZeroRow(tile.pitch - end, to + end);
  }
  // The columns that the last row shares with the one that would follow.
  if (rows < tile.block_rows) ZeroRow(HWY_MIN(tile.halo_w, tile.pitch), to);
}

// Loads channels [first, first + channels) of image `image`, which has `all`.
void LoadTile(const conv::Tile& tile, const Conv2dInput& input, int64_t image,
              int64_t all, int64_t first, int64_t channels, int64_t first_row,
              int64_t rows, float* line, float* to) {
  for (int64_t c = first; c < first + channels; ++c) {
    const int64_t source = (image * all + c) * tile.src_height * tile.src_width;
    for (int64_t a = 0; a < tile.planes_h; ++a) {
      for (int64_t b = 0; b < tile.planes_w; ++b) {
        LoadPlane(tile, input, c, source, a, b, first_row, rows, line, to);
        to += tile.plane();
      }
    }
  }
  ZeroRow(tile.slack(), to);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
