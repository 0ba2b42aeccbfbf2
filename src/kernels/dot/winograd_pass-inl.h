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

alignas(64) constexpr uint16_t kNoPixels[32] = {};

// Row k of a strip's tiles, pairs of pixels; zeros where it does not exist.
template <int64_t kWidth>
THIMBLE_DOT_INLINE Words LoadTileRow(const dot::StripRows& rows, int64_t k,
                                     const uint16_t* plane) {
  const uint16_t* p[4];
  THIMBLE_DOT_UNROLL
  for (int64_t i = 0; i < 32 / kWidth; ++i) {
    p[i] = rows.offset[k][i] < 0 ? kNoPixels : plane + rows.offset[k][i];
  }
  if constexpr (kWidth == 32) return LoadWords(p[0]);
  if constexpr (kWidth == 16) return LoadHalves(p[0], p[1]);
  if constexpr (kWidth == 8) return LoadQuarters(p[0], p[1], p[2], p[3]);
}

// Where row k exists.
template <int64_t kWidth>
THIMBLE_DOT_INLINE LaneMask TileRowMask(const dot::StripRows& rows, int64_t k) {
  uint32_t mask[kLanes];
  THIMBLE_DOT_UNROLL
  for (int64_t i = 0; i < kLanes; ++i) {
    mask[i] = rows.offset[k][2 * i / kWidth] < 0 ? 0 : 1;
  }
  return MaskOf(LoadWords(mask));
}

// Planes lie too far apart for the CPU to see a pattern.
THIMBLE_DOT_INLINE void PrefetchNext(const dot::Planes& planes,
                                     int64_t channel) {
  const uint16_t* next = planes.from + channel * planes.plane + planes.next;
  __builtin_prefetch(next);
  __builtin_prefetch(next + 32);
}

// Slice i of B'x is row `plus` of a tile's four, and row `minus` taken from it
// (added, for slice 1).
struct SliceRows {
  int64_t plus;
  int64_t minus;
  float sign;
};
constexpr SliceRows kSliceRows[4] = {
    {0, 2, -1.0f}, {1, 2, 1.0f}, {2, 1, -1.0f}, {1, 3, -1.0f}};

// What does not change from channel to channel.
template <int64_t kWidth>
struct SliceLoad {
  SliceLoad(const dot::StripRows& strip, int64_t slice, bool relu)
      : rows(kSliceRows[slice]),
        sign(SetFloats(rows.sign)),
        plus(TileRowMask<kWidth>(strip, rows.plus)),
        minus(TileRowMask<kWidth>(strip, rows.minus)),
        bound(
            SetFloats(relu ? 0.0f : -std::numeric_limits<float>::infinity())) {}
  SliceRows rows;
  Floats sign;
  LaneMask plus;
  LaneMask minus;
  Floats bound;
};

// The four columns of a slice of channel `channel`, 16 tiles each.
template <int64_t kWidth, bool kActivate>
THIMBLE_DOT_INLINE void LoadColumns(const dot::StripRows& strip,
                                    const dot::Planes& planes, int64_t channel,
                                    const SliceLoad<kWidth>& load,
                                    Floats (&columns)[4]) {
  const uint16_t* plane = planes.from + channel * planes.plane;
  const Words plus = LoadTileRow<kWidth>(strip, load.rows.plus, plane);
  const Words minus = LoadTileRow<kWidth>(strip, load.rows.minus, plane);
  Floats p[2] = {Even(plus), Odd(plus)};
  Floats m[2] = {Even(minus), Odd(minus)};
  if constexpr (kActivate) {
    const Floats scale = SetFloats(planes.scale[channel]);
    const Floats shift = SetFloats(planes.shift[channel]);
    THIMBLE_DOT_UNROLL
    for (int64_t i = 0; i < 2; ++i) {
      // Padding is zero after the activation.
      p[i] = AtLeast(load.bound, MaskedMulAdd(load.plus, p[i], scale, shift));
      m[i] = AtLeast(load.bound, MaskedMulAdd(load.minus, m[i], scale, shift));
    }
  }
  const Floats even = FusedMulAdd(m[0], load.sign, p[0]);
  const Floats odd = FusedMulAdd(m[1], load.sign, p[1]);
  // A tile's first column is its left neighbour's last but one, its last the
  // right neighbour's second.
  columns[0] = Sub(FromBefore<kWidth / 2>(odd), odd);
  columns[1] = Add(even, odd);
  columns[2] = Sub(odd, even);
  columns[3] = Sub(even, FromBehind<kWidth / 2>(even));
}

template <int64_t kWidth, bool kActivate>
void TransformChannels(const dot::StripRows& rows, const dot::Planes& planes,
                       int64_t channels, int64_t slice, uint32_t* to) {
  const SliceLoad<kWidth> load(rows, slice, planes.relu);
  for (int64_t c = 0; c < channels; c += 2, to += 4 * kLanes) {
    Floats a[4], b[4];
    if (slice == 0) {
      PrefetchNext(planes, c);
      PrefetchNext(planes, c + 1);
    }
    LoadColumns<kWidth, kActivate>(rows, planes, c, load, a);
    LoadColumns<kWidth, kActivate>(rows, planes, c + 1, load, b);
    THIMBLE_DOT_UNROLL
    for (int64_t k = 0; k < 4; ++k) Store(Zip(a[k], b[k]), to + k * kLanes);
  }
}

template <int64_t kWidth, bool kActivate>
void TransformChannelTiles(const dot::StripRows& rows,
                           const dot::Planes& planes, int64_t channels,
                           int64_t slice, int64_t stride, uint32_t* to) {
  const SliceLoad<kWidth> load(rows, slice, planes.relu);
  for (int64_t c = 0; c < channels; ++c, to += stride) {
    Floats k[4];
    if (slice == 0) PrefetchNext(planes, c);
    LoadColumns<kWidth, kActivate>(rows, planes, c, load, k);
    const int64_t column = channels * stride;
    StoreHalves(Round(k[0], k[1]), to, to + column);
    StoreHalves(Round(k[2], k[3]), to + 2 * column, to + 3 * column);
  }
}

void TransformInput(const dot::StripRows& rows, const dot::Planes& planes,
                    int64_t channels, int64_t slice, uint32_t* to) {
  const bool activate = planes.scale != nullptr;
  const auto run = rows.width == 32   ? activate ? &TransformChannels<32, true>
                                                 : &TransformChannels<32, false>
                     : rows.width == 16 ? activate ? &TransformChannels<16, true>
                                                   : &TransformChannels<16, false>
                     : activate ? &TransformChannels<8, true>
                                      : &TransformChannels<8, false>;
  run(rows, planes, channels, slice, to);
}

void TransformTiles(const dot::StripRows& rows, const dot::Planes& planes,
                    int64_t channels, int64_t slice, int64_t stride,
                    uint32_t* to) {
  const bool activate = planes.scale != nullptr;
  const auto run =
      rows.width == 32   ? activate ? &TransformChannelTiles<32, true>
                                    : &TransformChannelTiles<32, false>
        : rows.width == 16 ? activate ? &TransformChannelTiles<16, true>
                                      : &TransformChannelTiles<16, false>
        : activate ? &TransformChannelTiles<8, true>
                         : &TransformChannelTiles<8, false>;
  run(rows, planes, channels, slice, stride, to);
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

// Two channels of 16 outputs. Two neighbours in memory, channels or (backward)
// outputs, are 18 bf16 in nine words, of which 16 are transposed.
template <int64_t kSlice, bool kForward>
THIMBLE_DOT_INLINE void TransformPair(const uint16_t* from,
                                      int64_t output_weights,
                                      int64_t channel_weights, uint32_t* to) {
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
  Floats a[4], b[4];
  WeightColumns<kSlice, kForward>(taps, a);
  WeightColumns<kSlice, kForward>(taps + 9, b);
  THIMBLE_DOT_UNROLL
  for (int64_t k = 0; k < 4; ++k) {
    Store(kForward ? Zip(a[k], b[k]) : ZipHalves(a[k], b[k]), to + k * kLanes);
  }
}

template <int64_t kSlice, bool kForward>
void TransformPairs(const uint16_t* from, int64_t output_weights,
                    int64_t channel_weights, int64_t channels, uint32_t* to) {
  for (int64_t c = 0; c < channels; c += 2, to += 4 * kLanes) {
    TransformPair<kSlice, kForward>(from + c * channel_weights, output_weights,
                                    channel_weights, to);
  }
}

void TransformWeights(const uint16_t* from, int64_t output_weights,
                      int64_t channel_weights, int64_t channels, int64_t slice,
                      bool forward, uint32_t* to) {
  constexpr decltype(&TransformPairs<0, true>) kRun[2][4] = {
      {&TransformPairs<0, false>, &TransformPairs<1, false>,
       &TransformPairs<2, false>, &TransformPairs<3, false>},
      {&TransformPairs<0, true>, &TransformPairs<1, true>,
       &TransformPairs<2, true>, &TransformPairs<3, true>}};
  kRun[forward ? 1 : 0][slice](from, output_weights, channel_weights, channels,
                               to);
}

// ---- Products

// Adds v to row 0 and 1 of sums, as far as slice `slice` has a share in them;
// sets what it is the first to have a share in.
THIMBLE_DOT_INLINE void AddSlice(Floats v, int64_t slice, bool first,
                                 float* row0, float* row1) {
  if (slice == 0) {
    Store(first ? v : Add(LoadFloats(row0), v), row0);
    return;
  }
  if (slice < 3) Store(Add(LoadFloats(row0), v), row0);
  if (slice == 1) {
    Store(first ? v : Add(LoadFloats(row1), v), row1);
  } else {
    Store(Sub(LoadFloats(row1), v), row1);
  }
}

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

void Multiply(const uint32_t* tiles, const uint32_t* weights, int64_t channels,
              const dot::OutputRange& outputs, int64_t slice, bool first,
              float* sums) {
  sums += outputs.begin * 4 * kLanes;
  for (int64_t o = outputs.begin; o < outputs.end; o += dot::kOutputStep) {
    Floats sum[4][4];
#if THIMBLE_DOT_IS_AVX2  // has half as many registers, each half as long
    MultiplyColumns<0, 1>(tiles, weights + o, channels, sum);
    MultiplyColumns<1, 1>(tiles, weights + o, channels, sum);
    MultiplyColumns<2, 1>(tiles, weights + o, channels, sum);
    MultiplyColumns<3, 1>(tiles, weights + o, channels, sum);
#else
    MultiplyColumns<0, 4>(tiles, weights + o, channels, sum);
#endif
    THIMBLE_DOT_UNROLL
    for (int64_t i = 0; i < 4; ++i, sums += 4 * kLanes) {
      const Floats left = Add(Add(sum[0][i], sum[1][i]), sum[2][i]);
      const Floats right = Sub(Sub(sum[1][i], sum[2][i]), sum[3][i]);
      AddSlice(left, slice, first, sums, sums + 2 * kLanes);
      AddSlice(right, slice, first, sums + kLanes, sums + 3 * kLanes);
    }
  }
}

}  // namespace
THIMBLE_DOT_END

#endif  // per-build include guard
