// SPDX-License-Identifier: Apache-2.0
//
// The kernels of winograd_kernels.h for the forward pass and the gradient of
// the input. Included once per build, by way of foreach_build.h; hence no
// `#pragma once`.
#if defined(THIMBLE_KERNELS_DOT_WINOGRAD_PASS_INL_H_) == \
    defined(THIMBLE_DOT_TOGGLE)
#ifdef THIMBLE_KERNELS_DOT_WINOGRAD_PASS_INL_H_
#undef THIMBLE_KERNELS_DOT_WINOGRAD_PASS_INL_H_
#else
#define THIMBLE_KERNELS_DOT_WINOGRAD_PASS_INL_H_
#endif

#include <cstdint>
#include <limits>

#include "kernels/dot/lanes-inl.h"
#include "kernels/dot/winograd_kernels.h"

THIMBLE_DOT_BEGIN
namespace {

// ---- Input

// What does not change from plane to plane.
struct RowLoad {
  RowLoad(const dot::StripRows& strip, bool relu)
      : above(MaskOf(strip.lanes[0] % 2 != 0 ? 0xFFFFu : 0xFFF0u)),
        below(MaskOf(strip.lanes[3] >> 15 != 0 ? 0xFFFFu : 0x0FFFu)),
        bound(
            SetFloats(relu ? 0.0f : -std::numeric_limits<float>::infinity())) {
    THIMBLE_DOT_UNROLL
    for (int64_t k = 0; k < 4; ++k) there[k] = MaskOf(strip.lanes[k]);
  }
  LaneMask there[4];
  // Of four rows of 8 pixels, of which the first, or the last, may lie outside
  // of the plane.
  LaneMask above;
  LaneMask below;
  Floats bound;
};

// Row k of a strip's tiles, pairs of pixels. Rows of 8 are every second one of
// those of two vectors: that is a permute instead of three insertions.
template <int64_t kWidth>
THIMBLE_DOT_INLINE Words LoadTileRow(const dot::StripRows& rows,
                                     const RowLoad& load, int64_t k,
                                     const uint16_t* plane) {
  const int64_t* at = rows.offset[k];
  if constexpr (kWidth == 32) return LoadWords(plane + at[0]);
  if constexpr (kWidth == 16) return LoadHalves(plane + at[0], plane + at[1]);
  if constexpr (kWidth == 8) {
    const uint16_t* from = plane + rows.offset[1][0];
    const LaneMask all = MaskOf(0xFFFFu);
    if (k == 0) return LoadEvenQuarters(from - 8, load.above, all);
    if (k == 1) return LoadEvenQuarters(from, all, all);
    if (k == 2) return LoadOddQuarters(from, all, all);
    return LoadOddQuarters(from + 8, all, load.below);
  }
}

// Planes lie too far apart for the CPU to see a pattern.
THIMBLE_DOT_INLINE void PrefetchNext(const dot::Planes& planes,
                                     int64_t channel) {
  const uint16_t* next = planes.from + channel * planes.plane + planes.next;
  __builtin_prefetch(next);
  __builtin_prefetch(next + 32);
}

// Rows of one channel's tiles, activated: left and right pixels.
struct TileRow {
  Floats even;
  Floats odd;
};

template <int64_t kWidth, bool kActivate>
THIMBLE_DOT_INLINE TileRow LoadRow(const dot::StripRows& strip,
                                   const dot::Planes& planes, int64_t channel,
                                   const RowLoad& load, int64_t k) {
  const uint16_t* plane = planes.from + channel * planes.plane;
  const Words pixels = LoadTileRow<kWidth>(strip, load, k, plane);
  if constexpr (!kActivate) {
    const Words masked = Masked(load.there[k], pixels);
    return {Even(masked), Odd(masked)};
  } else {
    const Floats scale = SetFloats(planes.scale[channel]);
    const Floats shift = SetFloats(planes.shift[channel]);
    // Padding is zero after the activation.
    const auto activated = [&](Floats v) {
      return AtLeast(load.bound, MaskedMulAdd(load.there[k], v, scale, shift));
    };
    return {activated(Even(pixels)), activated(Odd(pixels))};
  }
}

// Slice kSlice of B'x of a tile's four rows.
template <int64_t kSlice>
THIMBLE_DOT_INLINE TileRow SliceOf(const TileRow& r0, const TileRow& r1,
                                   const TileRow& r2, const TileRow& r3) {
  if constexpr (kSlice == 0) {
    return {Sub(r0.even, r2.even), Sub(r0.odd, r2.odd)};
  } else if constexpr (kSlice == 1) {
    return {Add(r1.even, r2.even), Add(r1.odd, r2.odd)};
  } else if constexpr (kSlice == 2) {
    return {Sub(r2.even, r1.even), Sub(r2.odd, r1.odd)};
  } else {
    return {Sub(r1.even, r3.even), Sub(r1.odd, r3.odd)};
  }
}

// Its four columns. A tile's first one is its left neighbour's last but one,
// its last the right neighbour's second.
template <int64_t kWidth>
THIMBLE_DOT_INLINE void ColumnsOf(const TileRow& row, Floats (&columns)[4]) {
  columns[0] = Sub(FromBefore<kWidth / 2>(row.odd), row.odd);
  columns[1] = Add(row.even, row.odd);
  columns[2] = Sub(row.odd, row.even);
  columns[3] = Sub(row.even, FromBehind<kWidth / 2>(row.even));
}

template <int64_t kWidth, int64_t kSlice>
THIMBLE_DOT_INLINE void StorePair(const TileRow (&a)[4], const TileRow (&b)[4],
                                  uint32_t* to) {
  Floats first[4], second[4];
  ColumnsOf<kWidth>(SliceOf<kSlice>(a[0], a[1], a[2], a[3]), first);
  ColumnsOf<kWidth>(SliceOf<kSlice>(b[0], b[1], b[2], b[3]), second);
  THIMBLE_DOT_UNROLL
  for (int64_t k = 0; k < 4; ++k) {
    Store(Zip(first[k], second[k]), to + k * kLanes);
  }
}

template <int64_t kWidth, bool kActivate>
void TransformChannels(const dot::StripRows& rows, const dot::Planes& planes,
                       int64_t channels, uint32_t* to) {
  const RowLoad load(rows, planes.relu);
  const int64_t slice = channels / 2 * 4 * kLanes;
  for (int64_t c = 0; c < channels; c += 2, to += 4 * kLanes) {
    PrefetchNext(planes, c);
    PrefetchNext(planes, c + 1);
    TileRow a[4], b[4];
    THIMBLE_DOT_UNROLL
    for (int64_t k = 0; k < 4; ++k) {
      a[k] = LoadRow<kWidth, kActivate>(rows, planes, c, load, k);
      b[k] = LoadRow<kWidth, kActivate>(rows, planes, c + 1, load, k);
    }
    StorePair<kWidth, 0>(a, b, to);
    StorePair<kWidth, 1>(a, b, to + slice);
    StorePair<kWidth, 2>(a, b, to + 2 * slice);
    StorePair<kWidth, 3>(a, b, to + 3 * slice);
  }
}

void TransformInput(const dot::StripRows& rows, const dot::Planes& planes,
                    int64_t channels, uint32_t* to) {
  const bool activate = planes.scale != nullptr;
  const auto run = rows.width == 32   ? activate ? &TransformChannels<32, true>
                                                 : &TransformChannels<32, false>
                     : rows.width == 16 ? activate ? &TransformChannels<16, true>
                                                   : &TransformChannels<16, false>
                     : activate ? &TransformChannels<8, true>
                                      : &TransformChannels<8, false>;
  run(rows, planes, channels, to);
}

// ---- Weights

// The four columns of slice kSlice of G w G', of the nine taps at `taps`, in
// reverse order where `kForward` is false.
template <int64_t kSlice, bool kForward>
THIMBLE_DOT_INLINE void WeightColumns(const Floats* taps, Floats (&to)[4]) {
  const Floats half = SetFloats(0.5f);
  Floats t[3];
  THIMBLE_DOT_UNROLL
  for (int64_t k = 0; k < 3; ++k) {
    const Floats top = taps[kForward ? k : 8 - k];
    const Floats middle = taps[kForward ? 3 + k : 5 - k];
    const Floats bottom = taps[kForward ? 6 + k : 2 - k];
    if constexpr (kSlice == 0) t[k] = top;
    if constexpr (kSlice == 1) {
      t[k] = Mul(Add(Add(top, bottom), middle), half);
    }
    if constexpr (kSlice == 2) {
      t[k] = Mul(Sub(Add(top, bottom), middle), half);
    }
    if constexpr (kSlice == 3) t[k] = bottom;
  }
  const Floats sides = Add(t[0], t[2]);
  to[0] = t[0];
  to[1] = Mul(Add(sides, t[1]), half);
  to[2] = Mul(Sub(sides, t[1]), half);
  to[3] = t[2];
}

// Slice kSlice of two channels, whose taps are those at `taps` and the next
// nine.
template <int64_t kSlice, bool kForward>
THIMBLE_DOT_INLINE void StoreWeightPair(const Floats* taps, uint32_t* to) {
  Floats a[4], b[4];
  WeightColumns<kSlice, kForward>(taps, a);
  WeightColumns<kSlice, kForward>(taps + 9, b);
  THIMBLE_DOT_UNROLL
  for (int64_t k = 0; k < 4; ++k) {
    Store(kForward ? Zip(a[k], b[k]) : ZipHalves(a[k], b[k]), to + k * kLanes);
  }
}

// Two channels of 16 outputs. Two neighbours in memory, channels or (backward)
// outputs, are 18 bf16 in nine words, of which 16 are transposed.
template <bool kForward>
THIMBLE_DOT_INLINE void TransformPair(const uint16_t* from,
                                      int64_t output_weights,
                                      int64_t channel_weights, int64_t slice,
                                      uint32_t* to) {
  Words r[16];
  THIMBLE_DOT_UNROLL
  for (int64_t i = 0; i < 16; ++i) {
    r[i] = LoadNineWords(kForward ? from + i * output_weights
                                  : from + i / 8 * channel_weights +
                                        i % 8 * 2 * output_weights);
  }
  Transpose16(r);
  Floats taps[18];
  THIMBLE_DOT_UNROLL
  for (int64_t i = 0; i < 9; ++i) {
    taps[2 * i] = Even(r[i]);
    taps[2 * i + 1] = Odd(r[i]);
  }
  StoreWeightPair<0, kForward>(taps, to);
  StoreWeightPair<1, kForward>(taps, to + slice);
  StoreWeightPair<2, kForward>(taps, to + 2 * slice);
  StoreWeightPair<3, kForward>(taps, to + 3 * slice);
}

template <bool kForward>
void TransformPairs(const uint16_t* from, int64_t output_weights,
                    int64_t channel_weights, int64_t channels, uint32_t* to) {
  const int64_t slice = channels / 2 * 4 * kLanes;
  for (int64_t c = 0; c < channels; c += 2, to += 4 * kLanes) {
    TransformPair<kForward>(from + c * channel_weights, output_weights,
                            channel_weights, slice, to);
  }
}

void TransformWeights(const uint16_t* from, int64_t output_weights,
                      int64_t channel_weights, int64_t channels, bool forward,
                      uint32_t* to) {
  const auto run = forward ? &TransformPairs<true> : &TransformPairs<false>;
  run(from, output_weights, channel_weights, channels, to);
}

// ---- Products

// Columns [kColumn, kColumn + kColumns) of four outputs.
template <int64_t kColumn, int64_t kColumns>
THIMBLE_DOT_INLINE void MultiplyColumns(const uint32_t* tiles,
                                        const uint32_t* weights,
                                        int64_t channels, Floats (&sum)[4][4]) {
  Floats acc[kColumns][4];
  THIMBLE_DOT_UNROLL
  for (int64_t i = 0; i < 4 * kColumns; ++i) acc[i / 4][i % 4] = ZeroFloats();
  tiles += kColumn * kLanes;
  weights += kColumn * kLanes;
  for (int64_t c = 0; c < channels; c += 2) {
    THIMBLE_DOT_UNROLL
    for (int64_t k = 0; k < kColumns; ++k) {
      const Words x = LoadWords(tiles + k * kLanes);
      THIMBLE_DOT_UNROLL
      for (int64_t o = 0; o < 4; ++o) {
        acc[k][o] = DotPair(acc[k][o], x, weights + k * kLanes + o);
      }
    }
    tiles += 4 * kLanes;
    weights += 4 * kLanes;
  }
  THIMBLE_DOT_UNROLL
  for (int64_t i = 0; i < 4 * kColumns; ++i) {
    sum[kColumn + i / 4][i % 4] = acc[i / 4][i % 4];
  }
}

// A slice's products of four outputs, left and right pixels of their tiles.
THIMBLE_DOT_INLINE void MultiplySlice(const uint32_t* tiles,
                                      const uint32_t* weights, int64_t channels,
                                      Floats (&left)[4], Floats (&right)[4]) {
  Floats sum[4][4];
#if THIMBLE_DOT_IS_AVX2  // has half as many registers, each half as long
  MultiplyColumns<0, 1>(tiles, weights, channels, sum);
  MultiplyColumns<1, 1>(tiles, weights, channels, sum);
  MultiplyColumns<2, 1>(tiles, weights, channels, sum);
  MultiplyColumns<3, 1>(tiles, weights, channels, sum);
#else
  MultiplyColumns<0, 4>(tiles, weights, channels, sum);
#endif
  THIMBLE_DOT_UNROLL
  for (int64_t i = 0; i < 4; ++i) {
    left[i] = Add(Add(sum[0][i], sum[1][i]), sum[2][i]);
    right[i] = Sub(Sub(sum[1][i], sum[2][i]), sum[3][i]);
  }
}

// Adds v to a tile's sums, as far as slice kSlice has a share in its two rows.
// Where `first` says so, slices 0 and 1 set what they are the first to have a
// share in.
template <int64_t kSlice>
THIMBLE_DOT_INLINE void AddSlice(Floats v, bool first, float* row0,
                                 float* row1) {
  if constexpr (kSlice == 0) Store(first ? v : Add(LoadFloats(row0), v), row0);
  if constexpr (kSlice == 1 || kSlice == 2) {
    Store(Add(LoadFloats(row0), v), row0);
  }
  if constexpr (kSlice == 1) Store(first ? v : Add(LoadFloats(row1), v), row1);
  if constexpr (kSlice >= 2) Store(Sub(LoadFloats(row1), v), row1);
}

template <int64_t kSlice>
THIMBLE_DOT_INLINE void AddProducts(const uint32_t* tiles,
                                    const uint32_t* weights, int64_t channels,
                                    bool first, float* sums) {
  const int64_t slice = kSlice * (channels / 2 * 4 * kLanes);
  Floats left[4], right[4];
  MultiplySlice(tiles + slice, weights + slice, channels, left, right);
  THIMBLE_DOT_UNROLL
  for (int64_t i = 0; i < 4; ++i, sums += 4 * kLanes) {
    AddSlice<kSlice>(left[i], first, sums, sums + 2 * kLanes);
    AddSlice<kSlice>(right[i], first, sums + kLanes, sums + 3 * kLanes);
  }
}

void Multiply(const uint32_t* tiles, const uint32_t* weights, int64_t channels,
              const dot::OutputRange& outputs, bool first, float* sums) {
  for (int64_t o = outputs.begin; o < outputs.end; o += dot::kOutputStep) {
    float* to = sums + o * 4 * kLanes;
    AddProducts<0>(tiles, weights + o, channels, first, to);
    AddProducts<1>(tiles, weights + o, channels, first, to);
    AddProducts<2>(tiles, weights + o, channels, first, to);
    AddProducts<3>(tiles, weights + o, channels, first, to);
  }
}

}  // namespace
THIMBLE_DOT_END

#endif  // per-build include guard
