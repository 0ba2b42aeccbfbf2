// SPDX-License-Identifier: Apache-2.0
//
// Tiles of x for the gradient of the weights. Included once per build, by way
// of foreach_build.h; hence no `#pragma once`.
#if defined(THIMBLE_KERNELS_DOT_WINOGRAD_TILES_INL_H_) == \
    defined(THIMBLE_DOT_TOGGLE)
#ifdef THIMBLE_KERNELS_DOT_WINOGRAD_TILES_INL_H_
#undef THIMBLE_KERNELS_DOT_WINOGRAD_TILES_INL_H_
#else
#define THIMBLE_KERNELS_DOT_WINOGRAD_TILES_INL_H_
#endif

#include <cstdint>

#include "kernels/dot/lanes-inl.h"
#include "kernels/dot/winograd_kernels.h"
#include "kernels/dot/winograd_pass-inl.h"

THIMBLE_DOT_BEGIN
namespace {

// A slice is the sum or the difference of two rows of a tile.
template <int64_t kSlice>
constexpr int64_t kFirstRow = kSlice == 0   ? 0
                              : kSlice == 2 ? 2
                                            : 1;
template <int64_t kSlice>
constexpr int64_t kSecondRow = kSlice == 2   ? 1
                               : kSlice == 3 ? 3
                                             : 2;

// Factors of left and right pixels in such a slice. Dot products with 1, -1 and
// 0 take pixels apart, leave out rows that are not there, and add, all on units
// of the CPU that have nothing else to do here; shifts would compete with
// additions and permutes. An infinity makes a NaN of its neighbour, which the
// sums would meet anyway.
template <int64_t kSlice>
struct SliceFactors {
  explicit SliceFactors(const RowLoad& load) {
    constexpr uint32_t kOne = 0x3F80;
    constexpr uint32_t kOther = kSlice == 1 ? kOne : 0x8000 | kOne;
    const LaneMask first = load.there[kFirstRow<kSlice>];
    const LaneMask second = load.there[kSecondRow<kSlice>];
    left[0] = Masked(first, SetWords(kOne));
    left[1] = Masked(second, SetWords(kOther));
    right[0] = Masked(first, SetWords(kOne << 16));
    right[1] = Masked(second, SetWords(kOther << 16));
  }
  Words left[2];
  Words right[2];
};

// Slice kSlice of B'x of one channel: of what is read as it is.
template <int64_t kWidth, int64_t kSlice>
THIMBLE_DOT_INLINE TileRow PlainSlice(const dot::StripRows& rows,
                                      const dot::Planes& planes,
                                      int64_t channel, const RowLoad& load,
                                      const SliceFactors<kSlice>& factors) {
  const uint16_t* plane = planes.from + channel * planes.plane;
  const Words first = LoadTileRow<kWidth>(rows, load, kFirstRow<kSlice>, plane);
  const Words second =
      LoadTileRow<kWidth>(rows, load, kSecondRow<kSlice>, plane);
  return {
      Dot(Dot(ZeroFloats(), first, factors.left[0]), second, factors.left[1]),
      Dot(Dot(ZeroFloats(), first, factors.right[0]), second,
          factors.right[1])};
}
// Of what is activated.
template <int64_t kWidth, int64_t kSlice>
THIMBLE_DOT_INLINE TileRow ActivatedSlice(const dot::StripRows& rows,
                                          const dot::Planes& planes,
                                          int64_t channel,
                                          const RowLoad& load) {
  const TileRow first =
      LoadRow<kWidth, true>(rows, planes, channel, load, kFirstRow<kSlice>);
  const TileRow second =
      LoadRow<kWidth, true>(rows, planes, channel, load, kSecondRow<kSlice>);
  if constexpr (kSlice == 1) {
    return {Add(first.even, second.even), Add(first.odd, second.odd)};
  } else {
    return {Sub(first.even, second.even), Sub(first.odd, second.odd)};
  }
}

// What a later strip adds, to the cache that holds what is worked on meanwhile:
// in the nearest one it would take the place of this strip's operands.
THIMBLE_DOT_INLINE void PrefetchLater(const dot::Planes& planes,
                                      int64_t channel) {
  const uint16_t* next = planes.from + channel * planes.plane + planes.next;
  __builtin_prefetch(next, 0, 2);
  __builtin_prefetch(next + 32, 0, 2);
}

// Both columns that are stored together are a vector.
template <int64_t kWidth, bool kActivate, int64_t kSlice>
void TransformStrip(const dot::BatchStrip& strip, int64_t channel, int64_t half,
                    uint32_t* to) {
  const dot::StripRows rows = strip.rows;
  const dot::Planes planes = strip.planes;
  const RowLoad load(rows, planes.relu);
  const SliceFactors<kSlice> factors(load);
  for (int64_t c = 0; c < dot::kGradChannels; ++c, to += kLanes) {
    if (kSlice == 0) PrefetchLater(planes, channel + c);
    TileRow row;
    if constexpr (kActivate) {
      row = ActivatedSlice<kWidth, kSlice>(rows, planes, channel + c, load);
    } else {
      row =
          PlainSlice<kWidth, kSlice>(rows, planes, channel + c, load, factors);
    }
    Floats k[4];
    ColumnsOf<kWidth>(row, k);
    Store(Round(k[0], k[1]), to);
    Store(Round(k[2], k[3]), to + half);
  }
}

template <int64_t kWidth, int64_t kSlice>
void TransformStrips(const dot::BatchStrip* strips, int64_t count,
                     int64_t channel, uint32_t* to) {
  const auto run = strips->planes.scale != nullptr
                       ? &TransformStrip<kWidth, true, kSlice>
                       : &TransformStrip<kWidth, false, kSlice>;
  constexpr int64_t kStrip = dot::kGradChannels * kLanes;
  for (int64_t s = 0; s < count; ++s, to += kStrip) {
    run(strips[s], channel, count * kStrip, to);
  }
}

template <int64_t kWidth>
void TransformSlice(const dot::BatchStrip* strips, int64_t count,
                    int64_t channel, int64_t slice, uint32_t* to) {
  constexpr decltype(&TransformStrips<kWidth, 0>) kRun[4] = {
      &TransformStrips<kWidth, 0>, &TransformStrips<kWidth, 1>,
      &TransformStrips<kWidth, 2>, &TransformStrips<kWidth, 3>};
  kRun[slice](strips, count, channel, to);
}

void TransformTiles(const dot::BatchStrip* strips, int64_t count,
                    int64_t channel, int64_t slice, uint32_t* to) {
  const int64_t width = strips->rows.width;
  const auto run = width == 32   ? &TransformSlice<32>
                   : width == 16 ? &TransformSlice<16>
                                 : &TransformSlice<8>;
  run(strips, count, channel, slice, to);
}

}  // namespace
THIMBLE_DOT_END

#endif  // per-build include guard
