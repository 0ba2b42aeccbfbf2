// SPDX-License-Identifier: Apache-2.0
//
// SIMD bodies of pooling forward, each for one plane of f32. Lanes run over
// output columns whose windows lie inside the row; the few columns at the
// borders are scalar.
// Included once per SIMD target; hence no `#pragma once`.
#if defined(THIMBLE_KERNELS_POOL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef THIMBLE_KERNELS_POOL_INL_H_
#undef THIMBLE_KERNELS_POOL_INL_H_
#else
#define THIMBLE_KERNELS_POOL_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <cstring>

#include "kernels/elements-inl.h"
#include "kernels/pool/plane.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

using pool::PoolPlane;
using pool::Range;
using Bytes = hn::Rebind<uint8_t, D>;
using Ints = hn::Rebind<int32_t, D>;

// ---- Loads and stores of the first n lanes, for any n

HWY_INLINE V LoadUpTo(const float* p, size_t n) {
  const D d;
  return n >= hn::Lanes(d) ? hn::LoadU(d, p) : LoadFirst(d, p, n);
}

HWY_INLINE void StoreUpTo(V v, float* p, size_t n) {
  const D d;
  if (n >= hn::Lanes(d)) {
    hn::StoreU(v, d, p);
  } else {
    StoreFirst(v, d, p, n);
  }
}

// The first n lanes at p, of a plane that goes on to `end`. Where that leaves
// room, a whole vector is stored, which is faster than an exact one.
// REQUIRES: what lies behind the n lanes is written later.
HWY_INLINE void StoreInPlane(V v, float* p, size_t n, const float* end) {
  const bool has_room = static_cast<size_t>(end - p) >= hn::Lanes(D());
  StoreUpTo(v, p, has_room ? hn::Lanes(D()) : n);
}

// The pairs p[2i], p[2i+1] of n elements, taken apart; zeros behind them.
HWY_INLINE void LoadPairs(const float* p, size_t n, V& even, V& odd) {
  const D d;
  const size_t lanes = hn::Lanes(d);
  if (n >= 2 * lanes) {
    hn::LoadInterleaved2(d, p, even, odd);
    return;
  }
  const V first = LoadUpTo(p, n);
  const V second = n > lanes ? LoadFirst(d, p + lanes, n - lanes) : hn::Zero(d);
  even = hn::ConcatEven(d, second, first);
  odd = hn::ConcatOdd(d, second, first);
}

// As LoadPairs, of a plane that goes on to `end`: a whole load where it can be.
HWY_INLINE void LoadPairsInPlane(const float* p, size_t n, const float* end,
                                 V& even, V& odd) {
  const size_t whole = 2 * hn::Lanes(D());
  LoadPairs(p, static_cast<size_t>(end - p) >= whole ? whole : n, even, odd);
}

// p[0], p[stride], …, n ≤ Lanes of them, n > 0; lanes behind them are
// undefined. Elements up to `end` are readable: a whole load is faster than an
// exact one. kStride is the stride, or 0 for any.
template <int kStride>
HWY_INLINE V LoadStrided(const float* p, int64_t stride, size_t n,
                         const float* end) {
  const D d;
  const size_t lanes = hn::Lanes(d);
  const auto readable = static_cast<size_t>(end - p);
  if constexpr (kStride == 1) return LoadUpTo(p, readable);
  if constexpr (kStride == 2) {
    V even, odd;
    LoadPairs(p, readable >= 2 * lanes ? 2 * lanes : 2 * n - 1, even, odd);
    return even;
  }
  HWY_ALIGN float staged[hn::MaxLanes(d)] = {};
  for (size_t i = 0; i < n; ++i) {
    staged[i] = p[static_cast<int64_t>(i) * stride];
  }
  return hn::Load(d, staged);
}

// Winners are small integers: exact as floats, which saves converting masks.
HWY_INLINE V LoadWinners(const uint8_t* p, size_t n) {
  const Bytes d8;
  if (n >= hn::Lanes(d8)) {
    return hn::ConvertTo(D(), hn::PromoteTo(Ints(), hn::LoadU(d8, p)));
  }
  HWY_ALIGN uint8_t staged[HWY_MAX_BYTES] = {};
  std::memcpy(staged, p, n);
  return hn::ConvertTo(D(), hn::PromoteTo(Ints(), hn::LoadU(d8, staged)));
}

// As StoreInPlane.
HWY_INLINE void StoreWinners(V winners, uint8_t* p, size_t n,
                             const uint8_t* end) {
  const Bytes d8;
  const auto bytes = hn::DemoteTo(d8, hn::ConvertTo(Ints(), winners));
  if (static_cast<size_t>(end - p) >= hn::Lanes(d8)) {
    hn::StoreU(bytes, d8, p);
    return;
  }
  HWY_ALIGN uint8_t staged[HWY_MAX_BYTES];
  hn::StoreU(bytes, d8, staged);
  std::memcpy(p, staged, n);
}

// ---- Windows

// Kernel 2, stride 2, no padding, all windows inside: they are pairs in pairs
// of rows.
HWY_INLINE bool IsOfPairs(const PoolPlane& s) {
  return s.kernel == 2 && s.stride == 2 && s.top == 0 && s.left == 0 &&
         2 * s.out_height <= s.height && 2 * s.out_width <= s.width;
}

// The places k of window `out` that lie in [0, extent) along one axis. Never
// empty, since padding is less than the kernel.
HWY_INLINE Range PlacesOf(const PoolPlane& s, int64_t out, int64_t padding,
                          int64_t extent) {
  const int64_t start = out * s.stride - padding;
  return {HWY_MAX(0, -start), HWY_MIN(s.kernel, extent - start)};
}

// Index in the plane of the window's first place; negative in the padding.
HWY_INLINE int64_t CornerOf(const PoolPlane& s, int64_t oh, int64_t ow) {
  return (oh * s.stride - s.top) * s.width + ow * s.stride - s.left;
}

// The output columns whose windows lie inside the row.
HWY_INLINE Range InnerColumns(const PoolPlane& s) {
  const int64_t first = (s.left + s.stride - 1) / s.stride;
  const int64_t begin = HWY_MIN(first, s.out_width);
  const int64_t room = s.width + s.left - s.kernel;
  const int64_t end = room < 0 ? 0 : HWY_MIN(s.out_width, room / s.stride + 1);
  return {begin, HWY_MAX(begin, end)};
}

// Calls inner(ow, n) for vectors of n inner columns, border(ow) for the others.
template <typename Inner, typename Border>
HWY_INLINE void ForColumns(const PoolPlane& s, Range columns,
                           const Inner& inner, const Border& border) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(D()));
  for (int64_t ow = 0; ow < columns.begin; ++ow) border(ow);
  for (int64_t ow = columns.begin; ow < columns.end; ow += lanes) {
    inner(ow, static_cast<size_t>(HWY_MIN(lanes, columns.end - ow)));
  }
  for (int64_t ow = columns.end; ow < s.out_width; ++ow) border(ow);
}

// ---- Maximum

// A later candidate wins when it is larger, or the first NaN: when it is not
// less or equal, and the best so far is a number.
struct Best {
  V value;
  V place;

  HWY_INLINE void Offer(V candidate, V at) {
    const auto wins =
        hn::AndNot(hn::Le(candidate, value), hn::Eq(value, value));
    value = hn::IfThenElse(wins, candidate, value);
    place = hn::IfThenElse(wins, at, place);
  }
};

// Where IsOfPairs: each element is read once.
HWY_INLINE void MaxPlaneOfPairs(const PoolPlane& s, const float* x, float* y,
                                uint8_t* winner) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t out_width = s.out_width;
  const int64_t outputs = s.out_height * out_width;
  const float* end = x + s.height * s.width;
  for (int64_t oh = 0; oh < s.out_height; ++oh) {
    const float* top = x + 2 * oh * s.width;
    for (int64_t ow = 0; ow < out_width; ow += lanes) {
      const auto n = static_cast<size_t>(HWY_MIN(lanes, out_width - ow));
      V a0, a1, b0, b1;
      LoadPairsInPlane(top + 2 * ow, 2 * n, end, a0, a1);
      LoadPairsInPlane(top + s.width + 2 * ow, 2 * n, end, b0, b1);
      Best best{a0, hn::Zero(d)};
      best.Offer(a1, hn::Set(d, 1.0f));
      best.Offer(b0, hn::Set(d, 2.0f));
      best.Offer(b1, hn::Set(d, 3.0f));
      const int64_t at = oh * out_width + ow;
      StoreInPlane(best.value, y + at, n, y + outputs);
      if (winner != nullptr) {
        StoreWinners(best.place, winner + at, n, winner + outputs);
      }
    }
  }
}

HWY_INLINE float MaxAtBorder(const PoolPlane& s, const float* x, int64_t oh,
                             int64_t ow, uint8_t* winner) {
  const Range kh = PlacesOf(s, oh, s.top, s.height);
  const Range kw = PlacesOf(s, ow, s.left, s.width);
  const int64_t corner = CornerOf(s, oh, ow);
  float best = x[corner + kh.begin * s.width + kw.begin];
  int64_t place = kh.begin * s.kernel + kw.begin;
  for (int64_t h = kh.begin; h < kh.end; ++h) {
    for (int64_t w = kw.begin; w < kw.end; ++w) {
      const float candidate = x[corner + h * s.width + w];
      if (candidate <= best || best != best) continue;
      best = candidate;
      place = h * s.kernel + w;
    }
  }
  if (winner != nullptr) *winner = static_cast<uint8_t>(place);
  return best;
}

template <int kStride>
HWY_INLINE void MaxPlane(const PoolPlane& s, const float* x, float* y,
                         uint8_t* winner) {
  const D d;
  const int64_t out_width = s.out_width;
  const int64_t outputs = s.out_height * out_width;
  const float* end = x + s.height * s.width;
  const Range columns = InnerColumns(s);
  for (int64_t oh = 0; oh < s.out_height; ++oh) {
    const Range kh = PlacesOf(s, oh, s.top, s.height);
    const int64_t out_row = oh * out_width;
    const auto inner = [&](int64_t ow, size_t n) HWY_ATTR {
      Best best{};
      for (int64_t h = kh.begin; h < kh.end; ++h) {
        const float* from = x + (CornerOf(s, oh, ow) + h * s.width);
        for (int64_t w = 0; w < s.kernel; ++w) {
          const V v = LoadStrided<kStride>(from + w, s.stride, n, end);
          const V at = hn::Set(d, static_cast<float>(h * s.kernel + w));
          if (h == kh.begin && w == 0) {
            best = {v, at};
          } else {
            best.Offer(v, at);
          }
        }
      }
      const int64_t at = out_row + ow;
      StoreInPlane(best.value, y + at, n, y + outputs);
      if (winner != nullptr) {
        StoreWinners(best.place, winner + at, n, winner + outputs);
      }
    };
    ForColumns(s, columns, inner, [&](int64_t ow) HWY_ATTR {
      y[out_row + ow] = MaxAtBorder(
          s, x, oh, ow, winner == nullptr ? nullptr : winner + out_row + ow);
    });
  }
}

// ---- The body for a stride

void MaxPoolPlane(const PoolPlane& plane, const float* x, float* y,
                  uint8_t* winner) {
  if (IsOfPairs(plane)) {
    MaxPlaneOfPairs(plane, x, y, winner);
  } else if (plane.stride == 1) {
    MaxPlane<1>(plane, x, y, winner);
  } else if (plane.stride == 2) {
    MaxPlane<2>(plane, x, y, winner);
  } else {
    MaxPlane<0>(plane, x, y, winner);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
