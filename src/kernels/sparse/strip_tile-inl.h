// SPDX-License-Identifier: Apache-2.0
//
// Tiles of the strips of sparse convolutions (strip_pass.h): rows of images
// into scratch. Included once per SIMD target, after <hwy/highway.h>; hence no
// `#pragma once`.
#if defined(THIMBLE_KERNELS_SPARSE_STRIP_TILE_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef THIMBLE_KERNELS_SPARSE_STRIP_TILE_INL_H_
#undef THIMBLE_KERNELS_SPARSE_STRIP_TILE_INL_H_
#else
#define THIMBLE_KERNELS_SPARSE_STRIP_TILE_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "kernels/conv/grouped-inl.h"
#include "kernels/conv/grouped_tile-inl.h"
#include "kernels/sparse/strip_pass.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3

// What a tile holds.
struct StripPlace {
  int64_t image = 0;
  int64_t images = 1;
  int64_t first_row = 0;  // of positions
  int64_t rows = 0;       // that exist
  int64_t channel = 0;
  int64_t channels = 0;
};

// Rows [begin, end) of n exist, the others are zeros.
struct RowRange {
  int64_t begin;
  int64_t end;
};
// Of rows first, first + step, … of `height`.
HWY_INLINE RowRange RowsThere(int64_t first, int64_t step, int64_t n,
                              int64_t height) {
  const int64_t begin =
      HWY_MIN(n, first < 0 ? (step - 1 - first) / step : int64_t{0});
  const int64_t end = conv::CeilDiv(HWY_MAX(int64_t{0}, height - first), step);
  return {begin, HWY_MAX(begin, HWY_MIN(n, end))};
}

HWY_INLINE void ZeroRows(int64_t rows, int64_t width, int64_t pitch,
                         float* to) {
  const Eight d;
  for (int64_t r = 0; r < rows; ++r, to += pitch) {
    for (int64_t i = 0; i < width; i += 8) hn::StoreU(hn::Zero(d), d, to + i);
  }
}

// n rows of one channel and image, as they are.
template <Prologue kPrologue, typename T>
HWY_INLINE void LoadWhole(const Conv2dInput& input, int64_t c, const T* plane,
                          int64_t height, int64_t width, int64_t first,
                          int64_t n, int64_t pitch, float* to) {
  const Eight d;
  const auto scale = Coefficient<kPrologue>(d, input.scale, c);
  const auto shift = Coefficient<kPrologue>(d, input.shift, c);
  const RowRange there = RowsThere(first, 1, n, height);
  ZeroRows(there.begin, width, pitch, to);
  ZeroRows(n - there.end, width, pitch, to + there.end * pitch);
  to += there.begin * pitch;
  const T* from = plane + (first + there.begin) * width;
  if (pitch == width) {
    const D whole;
    const V scales = Coefficient<kPrologue>(whole, input.scale, c);
    const V shifts = Coefficient<kPrologue>(whole, input.shift, c);
    const int64_t lanes = LaneCount();
    for (int64_t i = 0; i < (there.end - there.begin) * width; i += lanes) {
      const V v = LoadAs(whole, from + i);
      hn::StoreU(Activate<kPrologue>(whole, v, scales, shifts), whole, to + i);
    }
    return;
  }
  for (int64_t r = there.begin; r < there.end; ++r, to += pitch) {
    for (int64_t i = 0; i < width; i += 8, from += 8) {
      const auto v = LoadAs(d, from);
      hn::StoreU(Activate<kPrologue>(d, v, scale, shift), d, to + i);
    }
  }
}

// n rows, every second one from `first` on, as planes of even and odd columns.
template <Prologue kPrologue, bool kOdd, typename T>
HWY_INLINE void LoadHalves(const Conv2dInput& input, int64_t c, const T* plane,
                           int64_t height, int64_t width, int64_t first,
                           int64_t n, int64_t pitch, float* of_even,
                           float* of_odd) {
  const RowRange there = RowsThere(first, 2, n, height);
  const auto zero = [&](float* to) HWY_ATTR {
    ZeroRows(there.begin, width / 2, pitch, to);
    ZeroRows(n - there.end, width / 2, pitch, to + there.end * pitch);
  };
  zero(of_even);
  if constexpr (kOdd) zero(of_odd);
  const int64_t at = there.begin * pitch;
  SplitRows<kPrologue, kOdd>(input, c,
                             plane + (first + 2 * there.begin) * width, width,
                             there.end - there.begin, pitch, of_even + at,
                             kOdd ? of_odd + at : nullptr);
}

// One channel of one image.
template <Prologue kPrologue, typename T>
HWY_INLINE void LoadStripChannel(const sparse::StripTile& tile,
                                 const Conv2dInput& input, int64_t c,
                                 const T* plane, int64_t first, float* to) {
  const conv::GroupedPass& g = tile.grouped;
  const int64_t pitch = tile.row_floats, rows = tile.rows();
  const int64_t height = g.src_height, width = g.src_width;
  if (g.step == 1) {
    LoadWhole<kPrologue>(input, c, plane, height, width, first - g.above,
                         rows + g.above + g.below, pitch, to);
  } else if (g.taps() == 1) {
    LoadHalves<kPrologue, false>(input, c, plane, height, width, 2 * first,
                                 rows, pitch, to, nullptr);
  } else {
    const int64_t odd = (tile.stored_rows() + 1) * pitch;
    const int64_t even = tile.stored_rows() * pitch;
    LoadHalves<kPrologue, true>(input, c, plane, height, width, 2 * first - 1,
                                rows + 1, pitch, to + odd, to);
    LoadHalves<kPrologue, true>(input, c, plane, height, width, 2 * first, rows,
                                pitch, to + 2 * odd + even, to + 2 * odd);
  }
}

#if HWY_TARGET == HWY_AVX3
// Rows of 8 of a channel of two images, side by side; of one, beside zeros.
template <Prologue kPrologue, typename T>
HWY_INLINE void LoadPairs(V scale, V shift, const T* from, const T* beside,
                          const RowRange& there, int64_t n, float* to) {
  const D d;
  const hn::Half<D> half;
  for (int64_t r = 0; r < there.begin; ++r) {
    hn::StoreU(hn::Zero(d), d, to + r * 16);
  }
  if (beside == nullptr) {
    for (int64_t r = there.begin; r < there.end; ++r, from += 8) {
      const V v = hn::ZeroExtendVector(d, LoadAs(half, from));
      const V u = Activate<kPrologue>(d, v, scale, shift);
      hn::StoreU(hn::IfThenElseZero(hn::FirstN(d, 8), u), d, to + r * 16);
    }
  } else {
    for (int64_t r = there.begin; r < there.end; ++r, from += 8, beside += 8) {
      const V v = hn::Combine(d, LoadAs(half, beside), LoadAs(half, from));
      hn::StoreU(Activate<kPrologue>(d, v, scale, shift), d, to + r * 16);
    }
  }
  for (int64_t r = there.end; r < n; ++r) {
    hn::StoreU(hn::Zero(d), d, to + r * 16);
  }
}

// Pairs of images whose rows are all read.
template <Prologue kPrologue, typename T>
void LoadPairedStrips(const sparse::StripTile& tile, const Conv2dInput& input,
                      const T* data, const StripPlace& place, float* to) {
  const D d;
  const conv::GroupedPass& g = tile.grouped;
  const int64_t first = place.first_row - g.above;
  const int64_t rows = tile.rows() + g.above + g.below;
  const RowRange there = RowsThere(first, 1, rows, g.src_height);
  const int64_t plane = g.src_height * 8, image = g.channels * plane;
  data += place.image * image + (first + there.begin) * 8;
  const int64_t channel_floats = tile.channel_floats();
  for (int64_t i = 0; i < place.channels; ++i, to += channel_floats) {
    const int64_t c = place.channel + i;
    const V scale = Coefficient<kPrologue>(d, input.scale, c);
    const V shift = Coefficient<kPrologue>(d, input.shift, c);
    for (int64_t p = 0; p < place.images; p += 2) {
      const T* from = data + p * image + c * plane;
      LoadPairs<kPrologue>(scale, shift, from,
                           p + 1 < place.images ? from + image : nullptr, there,
                           rows, to + p / 2 * tile.set_floats());
    }
  }
}
#endif

// Images that are missing are zeros.
void LoadStrips(const sparse::StripTile& tile, const Conv2dInput& input,
                const StripPlace& place, float* to) {
  const conv::GroupedPass& g = tile.grouped;
  const int64_t channel_floats = tile.channel_floats();
  if (place.images % tile.pair != 0 && g.step == 2) {
    for (int64_t i = 0; i < place.channels * channel_floats; ++i) to[i] = 0.0f;
  }
  const int64_t plane = g.src_height * g.src_width;
  WithInput(input, [&](auto type, auto prologue) HWY_ATTR {
    using T = decltype(type);
    const T* data = input.x.As<T>();
#if HWY_TARGET == HWY_AVX3
    if (g.step == 1 && tile.pair == 2) {
      LoadPairedStrips<decltype(prologue)::value>(tile, input, data, place, to);
      return;
    }
#endif
    for (int64_t i = 0; i < place.channels; ++i) {
      const int64_t c = place.channel + i;
      for (int64_t p = 0; p < place.images; ++p) {
        const T* from = data + ((place.image + p) * g.channels + c) * plane;
        LoadStripChannel<decltype(prologue)::value>(
            tile, input, c, from, place.first_row,
            to + i * channel_floats + p / tile.pair * tile.set_floats() +
                p % tile.pair * g.width);
      }
    }
  });
}

#endif  // 8 lanes

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
