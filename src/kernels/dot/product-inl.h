// SPDX-License-Identifier: Apache-2.0
//
// Blocks of matrix products of bf16 pairs (product.h). Included once per build,
// by way of foreach_build.h; hence no `#pragma once`.
#include "kernels/dot/halves-inl.h"
#include "kernels/dot/lanes-inl.h"

THIMBLE_DOT_BEGIN
namespace {

using dot::ProductBlock;
using matmul::kPanelDepth;
using matmul::Product;

// Rows worked on together: where rows of C are columns of A, a cache line of
// them is read at once, since lines far apart do not stay in a cache.
constexpr size_t kRows = dot::kGroupRows;
constexpr size_t kMostRows = 2 * kRows;
constexpr size_t kPairs = kPanelDepth / 2;
constexpr size_t kMostVectors = matmul::kMostStagedColumns / kLanes;
constexpr size_t kMostColumns = matmul::kMostStagedColumns;

THIMBLE_DOT_INLINE const uint16_t* Bits(const ConstTensor& tensor) {
  return tensor.halves(DType::kBF16);
}

// Terms [begin, begin + terms) of a block's columns, as [pair][vectors * 16].
struct DotPanel {
  uint32_t* data;
  size_t vectors;  // 1, 2 or 4
  size_t begin;
  size_t terms;

  size_t pairs() const { return (terms + 1) / 2; }
  size_t width() const { return vectors * kLanes; }
};

THIMBLE_DOT_INLINE void PrefetchLine(const uint16_t* at) {
  _mm_prefetch(reinterpret_cast<const char*>(at), _MM_HINT_T0);
}

// A rectangle that will be read next. Its rows are asked for a few at a time,
// between tiles: they lie too far apart for a CPU to foresee.
class Ahead {
 public:
  Ahead() = default;
  // `rows` of `count` elements, `stride` apart.
  Ahead(const uint16_t* data, size_t rows, size_t stride, size_t count)
      : data_(data), rows_(rows), stride_(stride), count_(count) {}

  void Fetch(size_t rows) {
    constexpr size_t kLine = 32;  // elements
    for (; rows > 0 && rows_ > 0; --rows, --rows_, data_ += stride_) {
      for (size_t i = 0; i < count_; i += kLine) PrefetchLine(data_ + i);
      PrefetchLine(data_ + count_ - 1);
    }
  }
  size_t rows() const { return rows_; }

 private:
  const uint16_t* data_ = nullptr;
  size_t rows_ = 0;
  size_t stride_ = 0;
  size_t count_ = 0;
};

// Rows [row, row + rows) of A, and a block's columns of B, of a panel's terms.
Ahead AheadOfA(const Product& p, size_t row, size_t rows, size_t begin,
               size_t terms) {
  const uint16_t* a = Bits(p.a) + row * p.a_row + begin * p.a_depth;
  return p.a_depth == 1 ? Ahead(a, rows, p.a_row, terms)
                        : Ahead(a, terms, p.a_depth, rows);
}
Ahead AheadOfB(const Product& p, const ProductBlock& block, size_t begin,
               size_t terms) {
  const uint16_t* b = Bits(p.b);
  return p.b_transposed ? Ahead(b + block.first_column * p.b_stride + begin,
                                block.columns, p.b_stride, terms)
                        : Ahead(b + begin * p.b_stride + block.first_column,
                                terms, p.b_stride, block.columns);
}

// Rows of B are pairs of lines.
void PackLines(const Product& p, const ProductBlock& block,
               const DotPanel& panel) {
  const uint16_t* b = Bits(p.b) + panel.begin * p.b_stride + block.first_column;
  for (size_t k = 0; k < panel.terms; k += 2) {
    const uint16_t* line = b + k * p.b_stride;
    const uint16_t* next = k + 1 < panel.terms ? line + p.b_stride : nullptr;
    uint32_t* to = panel.data + k / 2 * panel.width();
    for (size_t c = 0; c < panel.width(); c += kLanes) {
      const size_t left = block.columns > c ? block.columns - c : 0;
      Store(ZipLines(line + c, next == nullptr ? nullptr : next + c, left),
            to + c);
    }
  }
}

// Words of A for a group of rows: where they lie, or copied here where rows or
// terms are missing or neighbouring terms are not neighbours.
class DotGroup {
 public:
  DotGroup(const Product& p, size_t row, size_t rows, const DotPanel& panel) {
    const uint16_t* a = Bits(p.a) + row * p.a_row + panel.begin * p.a_depth;
    if (p.a_depth != 1) {
      data_ = room_;
      row_ = 2;
      pair_ = 2 * kMostRows;
      for (size_t k = 0; k < panel.terms; k += 2) {
        const uint16_t* line = a + k * p.a_depth;
        const uint16_t* next = k + 1 < panel.terms ? line + p.a_depth : nullptr;
        uint16_t* to = room_ + k * kMostRows;
        Store(ZipLines(line, next, rows), to);
        if (rows <= kRows) continue;
        Store(ZipLines(line + kRows, next == nullptr ? nullptr : next + kRows,
                       rows - kRows),
              to + 2 * kRows);
      }
      return;
    }
    pair_ = 2;
    if (rows == kRows && panel.terms % 2 == 0) {
      data_ = a;
      row_ = p.a_row;
      return;
    }
    data_ = room_;
    row_ = kPanelDepth;
    std::fill_n(room_, kRows * kPanelDepth, uint16_t{0});
    for (size_t r = 0; r < rows; ++r) {
      std::memcpy(room_ + r * row_, a + r * p.a_row,
                  panel.terms * sizeof(uint16_t));
    }
  }

  const uint16_t* row(size_t r) const { return data_ + r * row_; }
  size_t row_stride() const { return row_; }
  size_t pair_stride() const { return pair_; }

 private:
  const uint16_t* data_;
  size_t row_, pair_;
  alignas(64) uint16_t room_[kMostRows * kPanelDepth];
};

// One register tile: kR rows by kV vectors of columns. The sums go to `to`,
// whose rows lie kMostColumns apart.
template <size_t kR, size_t kV>
void SumTile(const DotGroup& group, size_t row, const uint32_t* b,
             size_t b_stride, size_t pairs, float* to) {
  const uint16_t* a = group.row(row);
  const size_t a_row = group.row_stride();
  const size_t a_pair = group.pair_stride();
  Floats sum[kR][kV];
  THIMBLE_DOT_UNROLL
  for (size_t i = 0; i < kR * kV; ++i) sum[i / kV][i % kV] = ZeroFloats();
  for (size_t k = pairs; k != 0; --k) {
    Words in[kV];
    THIMBLE_DOT_UNROLL
    for (size_t v = 0; v < kV; ++v) in[v] = LoadWords(b + v * kLanes);
    THIMBLE_DOT_UNROLL
    for (size_t r = 0; r < kR; ++r) {
      const Words factor = SetPair(a + r * a_row);
      THIMBLE_DOT_UNROLL
      for (size_t v = 0; v < kV; ++v) {
        sum[r][v] = Dot(sum[r][v], in[v], factor);
      }
    }
    a += a_pair;
    b += b_stride;
  }
  THIMBLE_DOT_UNROLL
  for (size_t i = 0; i < kR * kV; ++i) {
    Store(sum[i / kV][i % kV], to + i / kV * kMostColumns + i % kV * kLanes);
  }
}

// Sixteen sums, the addends and one broadcast fill 21 of 32 registers; with
// half as wide registers, which are half as many, those of two vectors do.
#if THIMBLE_DOT_IS_AVX2
constexpr size_t kTileRows[kMostVectors + 1] = {0, 2, 2, 0, 2};
constexpr size_t kTileVectors = 1;
#else
constexpr size_t kTileRows[kMostVectors + 1] = {0, 8, 8, 0, 4};
constexpr size_t kTileVectors = kMostVectors;
#endif

// All sums of a group over one panel, as [row][kMostColumns].
template <size_t kV>
void SumGroup(const DotGroup& group, size_t rows, const DotPanel& panel,
              Ahead& next, float* sums) {
  constexpr size_t kR = kTileRows[kV];
  constexpr size_t kStep = kV < kTileVectors ? kV : kTileVectors;
  const size_t share = next.rows() * kR / rows + 1;
  for (size_t r = 0; r < rows; r += kR) {
    next.Fetch(share);
    for (size_t v = 0; v < kV; v += kStep) {
      SumTile<kR, kStep>(group, r, panel.data + v * kLanes, panel.width(),
                         panel.pairs(), sums + r * kMostColumns + v * kLanes);
    }
  }
}

// Sums of one panel on their way to C, for rows from `row` on. What they are
// added to, and where they go: C's addend, the sums so far, and C, in turn.
struct DotStage {
  const Product& p;
  const ProductBlock& block;
  size_t columns_apart;  // between rows of `kept`
  float* kept;           // of the row, where C does not keep sums; or null
  bool first;
  bool last;
};

THIMBLE_DOT_INLINE Floats LoadAny(const ConstTensor& from, size_t at,
                                  size_t n) {
  if (from.dtype() == DType::kF32) return LoadFirstFloats(from.f32() + at, n);
  return LoadFirstHalves(Bits(from) + at, n);
}

// The block's part of one row.
template <bool kFirst, bool kLast>
THIMBLE_DOT_INLINE void FinishRow(const DotStage& stage, size_t at,
                                  const float* sums, float* kept) {
  const Product& p = stage.p;
  const bool in_c = p.c.dtype() == DType::kF32;
  const size_t columns = stage.block.columns;
  if (in_c) kept = p.c.f32() + at;
  for (size_t c = 0; c < columns; c += kLanes) {
    const size_t n = HWY_MIN(columns - c, size_t{kLanes});
    Floats sum = LoadFloats(sums + c);
    if constexpr (!kFirst) {
      sum = Add(LoadFirstFloats(kept + c, n), sum);
    } else if (p.addend.is_there()) {
      sum = Add(LoadAny(p.addend, at + c, n), sum);
    }
    if (in_c || !kLast) {
      StoreFirstFloats(sum, kept + c, n);
    } else {
      StoreFirstHalves(sum, p.c.halves(DType::kBF16) + at + c, n);
    }
  }
}

template <bool kFirst, bool kLast>
void FinishRowsOf(const DotStage& stage, size_t row, size_t rows,
                  const float* sums) {
  for (size_t r = 0; r < rows; ++r) {
    FinishRow<kFirst, kLast>(
        stage, (row + r) * stage.p.cols + stage.block.first_column,
        sums + r * kMostColumns,
        stage.kept == nullptr ? nullptr : stage.kept + r * stage.columns_apart);
  }
}

void FinishRows(const DotStage& stage, size_t row, size_t rows,
                const float* sums) {
  if (stage.first) {
    (stage.last ? FinishRowsOf<true, true>
                : FinishRowsOf<true, false>)(stage, row, rows, sums);
  } else {
    (stage.last ? FinishRowsOf<false, true>
                : FinishRowsOf<false, false>)(stage, row, rows, sums);
  }
}

template <size_t kV>
void MultiplyPanel(const Product& p, const ProductBlock& block,
                   const DotPanel& panel, float* kept, size_t columns_apart) {
  const DotStage stage = {.p = p,
                          .block = block,
                          .columns_apart = columns_apart,
                          .kept = kept,
                          .first = panel.begin == 0,
                          .last = panel.begin + panel.terms == p.depth};
  const size_t step = p.a_depth == 1 ? kRows : kMostRows;
  const size_t groups = (block.rows + step - 1) / step;
  const size_t begin = panel.begin + panel.terms;  // of the next one
  const size_t terms = HWY_MIN(p.depth - begin, kPanelDepth);
  Ahead of_b;
  if (terms > 0) of_b = AheadOfB(p, block, begin, terms);
  const size_t share = of_b.rows() / groups + 1;
  for (size_t r = 0; r < block.rows; r += step) {
    const size_t rows = HWY_MIN(block.rows - r, step);
    const size_t row = block.first_row + r;
    Ahead of_a;
    if (r + rows < block.rows) {
      of_a = AheadOfA(p, row + rows, HWY_MIN(block.rows - r - rows, step),
                      panel.begin, panel.terms);
    } else if (terms > 0) {
      of_a =
          AheadOfA(p, block.first_row, HWY_MIN(block.rows, step), begin, terms);
    }
    of_b.Fetch(share);
    alignas(64) float sums[kMostRows * kMostColumns];
    const DotGroup group(p, row, rows, panel);
    SumGroup<kV>(group, rows, panel, of_a, sums);
    DotStage at = stage;
    if (kept != nullptr) at.kept = kept + r * columns_apart;
    FinishRows(at, row, rows, sums);
  }
}

}  // namespace

// All terms of a block.
void MultiplyBlock(const Product& p, const matmul::StagedScratch& layout,
                   const ProductBlock& block, float* scratch) {
  DotPanel panel;
  panel.data = reinterpret_cast<uint32_t*>(scratch);
  panel.vectors = (block.columns + kLanes - 1) / kLanes;
  if (panel.vectors == 3) panel.vectors = 4;
  // A C that is summed up in one go needs none.
  float* kept = p.depth > kPanelDepth && layout.of_sums > 0
                    ? scratch + layout.of_panels
                    : nullptr;
  for (panel.begin = 0; panel.begin < p.depth; panel.begin += kPanelDepth) {
    panel.terms = HWY_MIN(p.depth - panel.begin, kPanelDepth);
    if (p.b_transposed) {
      PackColumns(Bits(p.b) + block.first_column * p.b_stride + panel.begin,
                  block.columns, p.b_stride, panel.terms, panel.width(),
                  panel.data);
    } else {
      PackLines(p, block, panel);
    }
    if (panel.vectors == 1) {
      MultiplyPanel<1>(p, block, panel, kept, layout.columns);
    } else if (panel.vectors == 2) {
      MultiplyPanel<2>(p, block, panel, kept, layout.columns);
    } else {
      MultiplyPanel<kMostVectors>(p, block, panel, kept, layout.columns);
    }
  }
}

THIMBLE_DOT_END
