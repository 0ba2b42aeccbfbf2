// SPDX-License-Identifier: Apache-2.0
//
// Small products of rows that lie where they are stored, as f32: weighted sums
// of rows, and dot products of rows. What an element is made of, and in which
// order, does not depend on the tile that it is in. Included once per SIMD
// target, after <hwy/highway.h>; hence no `#pragma once`.
#if defined(THIMBLE_KERNELS_ROW_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef THIMBLE_KERNELS_ROW_PRODUCTS_INL_H_
#undef THIMBLE_KERNELS_ROW_PRODUCTS_INL_H_
#else
#define THIMBLE_KERNELS_ROW_PRODUCTS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <limits>
#include <type_traits>

#include "kernels/elements-inl.h"
#include "kernels/lane_sums-inl.h"
#include "kernels/storage.h"
#include "kernels/tensor.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

// Rows of a matrix, or of a part of its columns: the first element of row r is
// the one at first + r * stride.
struct ConstRows {
  ConstTensor tensor;
  int64_t first, stride;

  ConstRows From(int64_t row) const {
    return {tensor, first + row * stride, stride};
  }
};
struct Rows {
  Tensor tensor;
  int64_t first, stride;

  operator ConstRows() const { return {tensor, first, stride}; }  // NOLINT
  Rows From(int64_t row) const {
    return {tensor, first + row * stride, stride};
  }
};

// ---- y[r] = Σ weight(r, i) · x[i], in the order of i

// weight(r, i) is weights[r * row_step + i * term_step]. Row r takes the terms
// i in [first + r * step, end + r * step) of [0, terms) alone.
struct WeightedSum {
  const float* weights;
  int64_t row_step, term_step;
  int64_t terms;
  int64_t first = 0;
  int64_t end = std::numeric_limits<int32_t>::max();
  int64_t step = 0;  // 0 or 1

  HWY_INLINE int64_t Begin(int64_t r) const {
    return HWY_MAX(int64_t{0}, HWY_MIN(first + r * step, terms));
  }
  HWY_INLINE int64_t End(int64_t r) const {
    return HWY_MIN(terms, HWY_MAX(end + r * step, int64_t{0}));
  }
};

#if HWY_TARGET == HWY_AVX3
constexpr int64_t kSumVectors = 4;
#else
constexpr int64_t kSumVectors = 2;
#endif
constexpr int64_t kSumRows = 4;

// Lanes: all of them, where kWhole, or the first `rest`.
template <bool kWhole, typename T>
HWY_INLINE V LoadLanes(const T* p, size_t rest) {
  if constexpr (kWhole) return LoadAs(D(), p);
  return LoadFirstAs(D(), p, rest);
}
template <bool kWhole, typename T>
HWY_INLINE void StoreLanes(V v, T* p, size_t rest) {
  if constexpr (kWhole) return StoreAs(v, D(), p);
  StoreFirstAs(v, D(), p, rest);
}

// One tile of accumulators: kRows rows of kVectors vectors.
template <int64_t kRows, int64_t kVectors, bool kWhole>
struct SumTile {
  V sum[kRows][kVectors];
  size_t rest;

  // Row r takes the terms [i, end).
  template <typename T>
  HWY_INLINE void TakeOne(const WeightedSum& s, const T* x, int64_t stride,
                          int64_t r0, int64_t r, int64_t i, int64_t end) {
    for (; i < end; ++i) {
      const V w =
          hn::Set(D(), s.weights[(r0 + r) * s.row_step + i * s.term_step]);
      THIMBLE_UNROLL
      for (int64_t k = 0; k < kVectors; ++k) {
        sum[r][k] = hn::MulAdd(
            w, LoadLanes<kWhole>(x + i * stride + k * LaneCount(), rest),
            sum[r][k]);
      }
    }
  }

  template <typename T>
  HWY_INLINE void TakeAll(const WeightedSum& s, const T* x, int64_t stride,
                          int64_t r0, int64_t i, int64_t end) {
    const float* w = s.weights + r0 * s.row_step + i * s.term_step;
    const T* at = x + i * stride;
    for (; i < end; ++i, w += s.term_step, at += stride) {
      V values[kVectors];
      THIMBLE_UNROLL
      for (int64_t k = 0; k < kVectors; ++k) {
        values[k] = LoadLanes<kWhole>(at + k * LaneCount(), rest);
      }
      THIMBLE_UNROLL
      for (int64_t r = 0; r < kRows; ++r) {
        const V weight = hn::Set(D(), w[r * s.row_step]);
        THIMBLE_UNROLL
        for (int64_t k = 0; k < kVectors; ++k) {
          sum[r][k] = hn::MulAdd(weight, values[k], sum[r][k]);
        }
      }
    }
  }

  // Rows [r0, r0 + kRows): terms that all rows take are loaded once for them.
  template <typename T>
  HWY_INLINE void Take(const WeightedSum& s, const T* x, int64_t stride,
                       int64_t r0) {
    const int64_t all = s.Begin(r0 + kRows - 1);
    const int64_t last = HWY_MAX(all, s.End(r0));
    if (s.step != 0) {
      THIMBLE_UNROLL
      for (int64_t r = 0; r < kRows; ++r) {
        TakeOne(s, x, stride, r0, r, s.Begin(r0 + r),
                HWY_MIN(all, s.End(r0 + r)));
      }
    }
    TakeAll(s, x, stride, r0, all, last);
    if (s.step != 0) {
      THIMBLE_UNROLL
      for (int64_t r = 0; r < kRows; ++r) {
        TakeOne(s, x, stride, r0, r, last, s.End(r0 + r));
      }
    }
  }
};

// A tile from where its columns begin in x, y and `sums`.
template <int64_t kRows, int64_t kVectors, bool kWhole, typename T>
HWY_INLINE void SumOneTile(const WeightedSum& s, const T* x, int64_t stride,
                           int64_t r0, size_t rest, const float* before,
                           int64_t before_stride, const Rows& y) {
  SumTile<kRows, kVectors, kWhole> tile;
  tile.rest = rest;
  const int64_t lanes = LaneCount();
  THIMBLE_UNROLL
  for (int64_t r = 0; r < kRows; ++r) {
    THIMBLE_UNROLL
    for (int64_t k = 0; k < kVectors; ++k) {
      tile.sum[r][k] =
          before == nullptr
              ? hn::Zero(D())
              : LoadLanes<kWhole>(before + r * before_stride + k * lanes, rest);
    }
  }
  tile.Take(s, x, stride, r0);
  WithFloatType(y.tensor.dtype(), [&](auto type) HWY_ATTR {
    auto* to = y.tensor.As<decltype(type)>() + y.first;
    THIMBLE_UNROLL
    for (int64_t r = 0; r < kRows; ++r) {
      THIMBLE_UNROLL
      for (int64_t k = 0; k < kVectors; ++k) {
        StoreLanes<kWhole>(tile.sum[r][k], to + r * y.stride + k * lanes, rest);
      }
    }
  });
}

// Rows [r0, r0 + kRows) of all columns. With `adds`, y is f32, and its sums go
// on.
template <int64_t kRows, typename T>
HWY_NOINLINE void SumTilesOf(const WeightedSum& s, const T* x, int64_t stride,
                             int64_t r0, int64_t columns, bool adds,
                             const Rows& y) {
  const int64_t lanes = LaneCount();
  const auto tile = [&](auto vectors, auto whole, int64_t c,
                        size_t rest) HWY_ATTR {
    const Rows to = {y.tensor, y.first + r0 * y.stride + c, y.stride};
    const float* before = adds ? y.tensor.f32() + to.first : nullptr;
    SumOneTile<kRows, decltype(vectors)::value, decltype(whole)::value>(
        s, x + c, stride, r0, rest, before, y.stride, to);
  };
  using One = std::integral_constant<int64_t, 1>;
  int64_t c = 0;
  for (; c + kSumVectors * lanes <= columns; c += kSumVectors * lanes) {
    tile(std::integral_constant<int64_t, kSumVectors>(), std::true_type(), c,
         0);
  }
  for (; c + lanes <= columns; c += lanes) tile(One(), std::true_type(), c, 0);
  if (c < columns) {
    tile(One(), std::false_type(), c, static_cast<size_t>(columns - c));
  }
}

// `rows` rows of y.
inline void SumRows(const WeightedSum& s, const ConstRows& x, int64_t rows,
                    int64_t columns, const Rows& y, bool adds = false) {
  WithFloatType(x.tensor.dtype(), [&](auto type) HWY_ATTR {
    using T = decltype(type);
    const T* from = x.tensor.As<T>() + x.first;
    int64_t r = 0;
    for (; r + kSumRows <= rows; r += kSumRows) {
      SumTilesOf<kSumRows>(s, from, x.stride, r, columns, adds, y);
    }
    if (rows - r >= 2) {
      SumTilesOf<2>(s, from, x.stride, r, columns, adds, y);
      r += 2;
    }
    if (r < rows) SumTilesOf<1>(s, from, x.stride, r, columns, adds, y);
  });
}

// ---- y[i, j] = scale · (a[i] · b[j])

#if HWY_TARGET == HWY_AVX3
constexpr int64_t kDotRows = 4;
#else
constexpr int64_t kDotRows = 2;
#endif
constexpr auto kDotColumns = static_cast<int64_t>(kTogether);
// Rows of b that stay in the first cache while all of a is read.
constexpr int64_t kDotBlock = 16;

// Of a tile: what is past the last row is that row again.
template <int64_t kRows, typename A, typename B>
HWY_INLINE void DotTile(const A* const (&a)[kRows],
                        const B* const (&b)[kDotColumns], int64_t width,
                        V (&sum)[kRows][kDotColumns]) {
  const D d;
  const int64_t lanes = LaneCount();
  const auto take = [&](auto whole, int64_t c, size_t rest) HWY_ATTR {
    constexpr bool kWhole = decltype(whole)::value;
    V v[kDotColumns];
    THIMBLE_UNROLL
    for (int64_t j = 0; j < kDotColumns; ++j) {
      v[j] = LoadLanes<kWhole>(b[j] + c, rest);
    }
    THIMBLE_UNROLL
    for (int64_t i = 0; i < kRows; ++i) {
      const V w = LoadLanes<kWhole>(a[i] + c, rest);
      THIMBLE_UNROLL
      for (int64_t j = 0; j < kDotColumns; ++j) {
        sum[i][j] = hn::MulAdd(w, v[j], sum[i][j]);
      }
    }
  };
  THIMBLE_UNROLL
  for (int64_t i = 0; i < kRows; ++i) {
    THIMBLE_UNROLL
    for (int64_t j = 0; j < kDotColumns; ++j) sum[i][j] = hn::Zero(d);
  }
  int64_t c = 0;
  for (; c + lanes <= width; c += lanes) take(std::true_type(), c, 0);
  if (c < width) {
    take(std::false_type(), c, static_cast<size_t>(width - c));
  }
}

template <int64_t kRows, typename A, typename B>
HWY_NOINLINE void DotTilesOf(const A* a, int64_t a_stride, int64_t m,
                             const B* b, int64_t b_stride, int64_t n,
                             int64_t width, float scale, float* y,
                             int64_t y_stride) {
  const Few few;
  const auto factor = hn::Set(few, scale);
  for (int64_t i0 = 0; i0 < m; i0 += kRows) {
    const A* rows[kRows];
    for (int64_t i = 0; i < kRows; ++i) {
      rows[i] = a + HWY_MIN(i0 + i, m - 1) * a_stride;
    }
    for (int64_t j0 = 0; j0 < n; j0 += kDotColumns) {
      const B* columns[kDotColumns];
      for (int64_t j = 0; j < kDotColumns; ++j) {
        columns[j] = b + HWY_MIN(j0 + j, n - 1) * b_stride;
      }
      V sum[kRows][kDotColumns];
      DotTile<kRows>(rows, columns, width, sum);
      THIMBLE_UNROLL
      for (int64_t i = 0; i < kRows; ++i) {
        const auto four = hn::Mul(SumsOfLanes(sum[i]), factor);
        if (i0 + i >= m) continue;
        float* to = y + (i0 + i) * y_stride + j0;
        if (j0 + kDotColumns <= n) {
          hn::StoreU(four, few, to);
        } else {
          StoreFirst(four, few, to, static_cast<size_t>(n - j0));
        }
      }
    }
  }
}

// m rows of a, n of b, both of `width` elements; tiles are of kRows rows of a.
template <int64_t kRows>
inline void DotRows(const ConstRows& a, int64_t m, const ConstRows& b,
                    int64_t n, int64_t width, float scale, float* y,
                    int64_t y_stride) {
  WithFloatType(a.tensor.dtype(), [&](auto type_a) HWY_ATTR {
    const auto* pa = a.tensor.As<decltype(type_a)>() + a.first;
    WithFloatType(b.tensor.dtype(), [&](auto type_b) HWY_ATTR {
      const auto* pb = b.tensor.As<decltype(type_b)>() + b.first;
      for (int64_t j = 0; j < n; j += kDotBlock) {
        DotTilesOf<kRows>(pa, a.stride, m, pb + j * b.stride, b.stride,
                          HWY_MIN(kDotBlock, n - j), width, scale, y + j,
                          y_stride);
      }
    });
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
