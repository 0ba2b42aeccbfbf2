// SPDX-License-Identifier: Apache-2.0
//
// Register tiles of matrix products of bf16 pairs (product.h), and what they
// ask for ahead while they compute. Included once per build, by way of
// foreach_build.h; hence no `#pragma once`.
#if defined(THIMBLE_KERNELS_DOT_PRODUCT_TILE_INL_H_) == \
    defined(THIMBLE_DOT_TOGGLE)
#ifdef THIMBLE_KERNELS_DOT_PRODUCT_TILE_INL_H_
#undef THIMBLE_KERNELS_DOT_PRODUCT_TILE_INL_H_
#else
#define THIMBLE_KERNELS_DOT_PRODUCT_TILE_INL_H_
#endif

#include "kernels/dot/halves-inl.h"
#include "kernels/dot/lanes-inl.h"

THIMBLE_DOT_BEGIN
namespace {

THIMBLE_DOT_INLINE void PrefetchLine(const uint16_t* at) {
  _mm_prefetch(reinterpret_cast<const char*>(at), _MM_HINT_T0);
}

// A rectangle that will be read next. Its rows are asked for a few at a time,
// while tiles compute: they lie too far apart for a CPU to foresee, and more at
// once than it can wait for would stop it.
class Ahead {
 public:
  Ahead() = default;
  // `rows` of `count` elements, `stride` apart.
  Ahead(const uint16_t* data, size_t rows, size_t stride, size_t count)
      : data_(data), rows_(rows), stride_(stride), count_(count) {}

  void Fetch(size_t rows) {
    constexpr size_t kLineBytes = 64;
    constexpr size_t kLine = kLineBytes / sizeof(uint16_t);
    for (; rows > 0 && rows_ > 0; --rows, --rows_, data_ += stride_) {
      for (size_t i = 0; i < count_; i += kLine) PrefetchLine(data_ + i);
      if (reinterpret_cast<uintptr_t>(data_) % kLineBytes != 0) {
        PrefetchLine(data_ + count_ - 1);
      }
    }
  }
  size_t rows() const { return rows_; }

 private:
  const uint16_t* data_ = nullptr;
  size_t rows_ = 0;
  size_t stride_ = 0;
  size_t count_ = 0;
};

// What register tiles ask for while they compute, every so many pairs.
constexpr size_t kFetchPairs = 16;
struct Next {
  Ahead a, b;
  size_t a_rows = 0;  // at a time
  size_t b_rows = 0;

  void Fetch() {
    a.Fetch(a_rows);
    b.Fetch(b_rows);
  }
};

// 24 sums, two vectors and a broadcast fill 27 of 32 registers; with half as
// wide registers, which are half as many, those of two rows do.
#if THIMBLE_DOT_IS_AVX2
constexpr size_t kTileRows = 2;
constexpr size_t kTileVectors = 1;
#else
constexpr size_t kTileRows = 12;
constexpr size_t kTileVectors = 2;
#endif

// Words of A for some rows: row r's are row_stride * r elements behind `data`,
// and pair_stride apart.
struct DotRows {
  const uint16_t* data;
  size_t row_stride;
  size_t pair_stride;
};

// Where the sums of a register tile go, rows some elements apart: they are
// added to `sums` if that is wanted, and rounded to `to`, or stored in `sums`
// where that is null.
struct TileTarget {
  float* sums;
  size_t sums_row;
  uint16_t* to;
  size_t to_row;
  bool add;
};

template <size_t kR, size_t kV>
THIMBLE_DOT_INLINE void StoreTile(Floats (&sum)[kR][kV],
                                  const TileTarget& target) {
  if (target.add) {
    THIMBLE_DOT_UNROLL
    for (size_t i = 0; i < kR * kV; ++i) {
      sum[i / kV][i % kV] = Add(
          LoadFloats(target.sums + i / kV * target.sums_row + i % kV * kLanes),
          sum[i / kV][i % kV]);
    }
  }
  if (target.to == nullptr) {
    THIMBLE_DOT_UNROLL
    for (size_t i = 0; i < kR * kV; ++i) {
      Store(sum[i / kV][i % kV],
            target.sums + i / kV * target.sums_row + i % kV * kLanes);
    }
    return;
  }
  THIMBLE_DOT_UNROLL
  for (size_t r = 0; r < kR; ++r) {
    uint16_t* to = target.to + r * target.to_row;
    if constexpr (kV == 2) {
      Store(Round(sum[r][0], sum[r][1]), to);
    } else {
      StoreFirstHalves(sum[r][0], to, kLanes);
    }
  }
}

// One register tile: kR rows by kV vectors of columns.
template <size_t kR, size_t kV>
void SumTile(const DotRows& rows, size_t row, const uint32_t* b,
             size_t b_stride, size_t pairs, Next& next,
             const TileTarget& target) {
  // Three rows to a pointer are what addresses can express.
  constexpr size_t kPointers = (kR + 2) / 3;
  const size_t a_row = rows.row_stride;
  const size_t a_pair = rows.pair_stride;
  const uint16_t* a[kPointers];
  Floats sum[kR][kV];
  THIMBLE_DOT_UNROLL
  for (size_t i = 0; i < kPointers; ++i) {
    a[i] = rows.data + (row + 3 * i) * a_row;
  }
  THIMBLE_DOT_UNROLL
  for (size_t i = 0; i < kR * kV; ++i) sum[i / kV][i % kV] = ZeroFloats();
  // Two loops: asked within a single one, a pointer would leave its register.
  while (pairs > 0) {
    next.Fetch();
    size_t count = HWY_MIN(pairs, kFetchPairs);
    pairs -= count;
    for (; count != 0; --count) {
      Words in[kV];
      THIMBLE_DOT_UNROLL
      for (size_t v = 0; v < kV; ++v) in[v] = LoadWords(b + v * kLanes);
      THIMBLE_DOT_UNROLL
      for (size_t r = 0; r < kR; ++r) {
        const Words factor = SetPair(a[r / 3] + r % 3 * a_row);
        THIMBLE_DOT_UNROLL
        for (size_t v = 0; v < kV; ++v) {
          sum[r][v] = Dot(sum[r][v], in[v], factor);
        }
      }
      THIMBLE_DOT_UNROLL
      for (size_t i = 0; i < kPointers; ++i) a[i] += a_pair;
      b += b_stride;
    }
  }
  StoreTile(sum, target);
}

// Sums of at most `rows` rows, as many as it returns.
template <size_t kV, size_t kR = kTileRows>
size_t SumRows(const DotRows& from, size_t row, size_t rows, const uint32_t* b,
               size_t b_stride, size_t pairs, Next& next,
               const TileTarget& target) {
  if constexpr (kR > 1) {
    constexpr size_t kFewer = kR == 12 ? 8 : kR / 2;
    if (rows < kR) {
      return SumRows<kV, kFewer>(from, row, rows, b, b_stride, pairs, next,
                                 target);
    }
  }
  SumTile<kR, kV>(from, row, b, b_stride, pairs, next, target);
  return kR;
}

}  // namespace
THIMBLE_DOT_END

#endif  // per-build include guard
