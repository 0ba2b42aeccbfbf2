// SPDX-License-Identifier: Apache-2.0
//
// Rows of a convolution's input of stride 2, for rows of 16 or 32 pixels: a
// source row is read, and activated, once for all kernel columns, and a
// permutation of it is what a column reads. Included once per build, by way of
// foreach_build.h; hence no `#pragma once`.
#if defined(THIMBLE_KERNELS_DOT_STRIDED_ROWS_INL_H_) == \
    defined(THIMBLE_DOT_TOGGLE)
#ifdef THIMBLE_KERNELS_DOT_STRIDED_ROWS_INL_H_
#undef THIMBLE_KERNELS_DOT_STRIDED_ROWS_INL_H_
#else
#define THIMBLE_KERNELS_DOT_STRIDED_ROWS_INL_H_
#endif

#include "kernels/dot/halves-inl.h"
#include "kernels/dot/lanes-inl.h"
#include "kernels/dot/source-inl.h"

THIMBLE_DOT_BEGIN
namespace {

#if THIMBLE_DOT_IS_AVX2

// The emulation takes the general way (source-inl.h), which gives the same.
class StridedRows {
 public:
  explicit StridedRows(const dot::Planes& planes) : StridedRows(planes, 0) {}
  static bool Takes(const dot::Planes&) { return false; }
  template <typename... Arguments>
  void LoadPairs(Arguments...) const {}
  template <typename... Arguments>
  void LoadSingles(Arguments...) const {}

 private:
  StridedRows(const dot::Planes&, int) {}
};

#else

// Planes of a tile whose rows begin at position row `first_row`; plane (a, b)
// has `rows` rows of positions.
class StridedRows {
 public:
  // A single kernel column, which has nothing to share, is faster as it is.
  static bool Takes(const dot::Planes& planes) {
    return planes.step == 2 && planes.src_width == 2 * planes.cols &&
           (planes.cols == 8 || planes.cols == 16) && planes.count_w > 1 &&
           planes.count_w <= kMostColumns;
  }

  // REQUIRES: Takes(planes).
  explicit StridedRows(const dot::Planes& planes) : planes_(planes) {
    for (int64_t b = 0; b < planes.count_w; ++b) {
      const dot::ColumnRange range = dot::ColumnsThere(planes, b);
      uint32_t there = (1u << range.end) - (1u << range.begin);
      if (planes.cols < kLanes) there |= there << planes.cols;
      columns_[b].singles = there | there << kLanes;
      columns_[b].pairs = 3 * dot::SpreadBits(there);
    }
  }

  // Pairs of two channels of an image, or of one and zeros, of planes (a, b)
  // for all b: to[b * plane + position].
  void LoadPairs(int64_t a, int64_t first_row, int64_t rows,
                 const SourceRow& low, const uint16_t* low_at,
                 const SourceRow& high, const uint16_t* high_at, int64_t plane,
                 uint32_t* to) const {
    const int64_t count = rows * planes_.cols;
    const int64_t row = kLanes / planes_.cols;
    for (int64_t p = 0; p < count; p += kLanes, first_row += row, rows -= row) {
      const Pieces at(planes_, a, first_row, rows);
      const Words x = Load(low, low_at, at);
      const Words y =
          high_at == nullptr ? ZeroWords() : Load(high, high_at, at);
      for (int64_t b = 0; b < planes_.count_w; ++b) {
        StoreFirstWords(
            _mm512_maskz_permutex2var_epi16(columns_[b].pairs & at.there, x,
                                            Order(kPairOrder, b), y),
            to + b * plane + p, static_cast<size_t>(count - p));
      }
    }
  }

  // One channel alone.
  void LoadSingles(int64_t a, int64_t first_row, int64_t rows,
                   const SourceRow& source, const uint16_t* from, int64_t plane,
                   uint16_t* to) const {
    const int64_t count = rows * planes_.cols;
    const int64_t row = kLanes / planes_.cols;
    for (int64_t p = 0; p < count; p += 2 * kLanes) {
      const Pieces first(planes_, a, first_row, rows);
      const Pieces second(planes_, a, first_row + row, rows - row);
      const Words x = Load(source, from, first);
      const Words y = Load(source, from, second);
      const uint32_t there = first.lanes | second.lanes << kLanes;
      for (int64_t b = 0; b < planes_.count_w; ++b) {
        StoreFirstPairs(
            _mm512_maskz_permutex2var_epi16(columns_[b].singles & there, x,
                                            Order(kSingleOrder, b), y),
            to + b * plane + p, static_cast<size_t>(count - p));
      }
      first_row += 2 * row;
      rows -= 2 * row;
    }
  }

 private:
  static constexpr int64_t kMostColumns = 8;  // of a kernel

  // Those of its positions that are in the source, of a whole vector: two bits
  // each, or one.
  struct Column {
    uint32_t pairs;
    uint32_t singles;
  };

  // Where positions are in column pad_w of two vectors of the source: two
  // channels, or one after the other. Rows are 2 * cols, so that position i is
  // at 2 * i, whatever `cols`.
  alignas(64) static constexpr uint16_t kPairOrder[32] = {
      0,  32, 2,  34, 4,  36, 6,  38, 8,  40, 10, 42, 12, 44, 14, 46,
      16, 48, 18, 50, 20, 52, 22, 54, 24, 56, 26, 58, 28, 60, 30, 62};
  alignas(64) static constexpr uint16_t kSingleOrder[32] = {
      0,  2,  4,  6,  8,  10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30,
      32, 34, 36, 38, 40, 42, 44, 46, 48, 50, 52, 54, 56, 58, 60, 62};
  inline __attribute__((always_inline)) Words Order(const uint16_t* order,
                                                    int64_t b) const {
    return _mm512_add_epi16(
        _mm512_load_si512(order),
        _mm512_set1_epi16(static_cast<int16_t>(b - planes_.pad_w)));
  }

  // The one or two source rows that 16 positions are in.
  struct Pieces {
    Pieces(const dot::Planes& planes, int64_t a, int64_t first_row,
           int64_t rows) {
      const int64_t source = 2 * first_row + a - planes.pad_h;
      const auto is_there = [&](int64_t r) {
        return r < rows && source + 2 * r >= 0 &&
               source + 2 * r < planes.src_height;
      };
      begin = source * planes.src_width;
      second = 2 * planes.src_width;
      if (planes.cols == kLanes) {
        whole = true;
        low = high = is_there(0);
      } else {
        low = is_there(0);
        high = is_there(1);
      }
      there = (low ? 0x0000FFFFu : 0) | (high ? 0xFFFF0000u : 0);
      lanes = (low ? 0x00FFu : 0) | (high ? 0xFF00u : 0);
    }
    int64_t begin;  // of the first one, and of the second behind it
    int64_t second;
    bool whole = false;  // there is one row, or none
    bool low, high;
    uint32_t there;  // two bits for each position,
    uint32_t lanes;  // or one
  };

  // 32 elements.
  static inline __attribute__((always_inline)) Words Load(
      const SourceRow& row, const uint16_t* channel, const Pieces& at) {
    Words v = ZeroWords();
    if (at.whole) {
      if (at.low) v = LoadWords(channel + at.begin);
    } else {
      const auto half = [&](bool there, int64_t from) {
        return there ? _mm256_loadu_si256(
                           reinterpret_cast<const __m256i*>(channel + from))
                     : _mm256_setzero_si256();
      };
      v = _mm512_inserti64x4(_mm512_castsi256_si512(half(at.low, at.begin)),
                             half(at.high, at.begin + at.second), 1);
    }
    if (!row.prologue) return v;
    return Zip(Activated(row, Even(v)), Activated(row, Odd(v)));
  }

  const dot::Planes& planes_;
  Column columns_[kMostColumns];
};

#endif

}  // namespace
THIMBLE_DOT_END

#endif  // per-build include guard
