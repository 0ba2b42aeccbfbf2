// SPDX-License-Identifier: Apache-2.0
//
// Blocks of matrix products of bf16 pairs (product.h). Included once per build,
// by way of foreach_build.h; hence no `#pragma once`.
#include "kernels/dot/halves-inl.h"
#include "kernels/dot/lanes-inl.h"
#include "kernels/dot/product_tile-inl.h"

THIMBLE_DOT_BEGIN
namespace {

using dot::ProductBlock;
using matmul::kPanelDepth;
using matmul::Product;

// Rows of C that are columns of A are copied a cache line at a time, since
// lines far apart do not stay in a cache; other ones that must be copied are as
// many.
constexpr size_t kRows = 2 * dot::kGroupRows;

// Half a first-level cache, so that it stays there for all rows of a block.
constexpr size_t kStripVectors = 2;
constexpr size_t kStripColumns = kStripVectors * kLanes;

THIMBLE_DOT_INLINE const uint16_t* Bits(const ConstTensor& tensor) {
  return tensor.halves(DType::kBF16);
}

// Terms [begin, begin + terms) of a block's columns, as
// [strip][pair][kStripColumns]; the last strip may be one vector wide.
struct DotPanel {
  uint32_t* data;
  size_t vectors;
  size_t begin;
  size_t terms;

  size_t pairs() const { return (terms + 1) / 2; }
  size_t strips() const {
    return (vectors + kStripVectors - 1) / kStripVectors;
  }
  uint32_t* strip(size_t s) const { return data + s * pairs() * kStripColumns; }
  // Columns that strip `s` has room for.
  size_t width(size_t s) const {
    return HWY_MIN(vectors - s * kStripVectors, kStripVectors) * kLanes;
  }
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
void PackLines(const uint16_t* b, size_t stride, size_t terms, size_t columns,
               size_t width, uint32_t* to) {
  size_t k = 0;
  if (columns == kStripColumns) {
    for (; k + 2 <= terms; k += 2, to += kStripColumns) {
      ZipWholeLines(b + k * stride, b + (k + 1) * stride, to);
    }
  }
  for (; k < terms; k += 2) {
    const uint16_t* line = b + k * stride;
    const uint16_t* next = k + 1 < terms ? line + stride : nullptr;
    for (size_t c = 0; c < width; c += kLanes) {
      const size_t left = columns > c ? columns - c : 0;
      Store(ZipLines(line + c, next == nullptr ? nullptr : next + c, left),
            to + c);
    }
    to += width;
  }
}

void PackPanel(const Product& p, const ProductBlock& block,
               const DotPanel& panel) {
  const uint16_t* b = Bits(p.b);
  for (size_t s = 0; s < panel.strips(); ++s) {
    const size_t first = s * kStripColumns;
    const size_t column = block.first_column + first;
    const size_t columns = HWY_MIN(block.columns - first, kStripColumns);
    if (p.b_transposed) {
      PackColumns(b + column * p.b_stride + panel.begin, columns, p.b_stride,
                  panel.terms, panel.width(s), panel.strip(s));
    } else {
      PackLines(b + panel.begin * p.b_stride + column, p.b_stride, panel.terms,
                columns, panel.width(s), panel.strip(s));
    }
  }
}

// Whether A's words are read where they lie.
THIMBLE_DOT_INLINE bool ReadsInPlace(const Product& p, const DotPanel& panel) {
  return p.a_depth == 1 && panel.terms % 2 == 0;
}
DotRows RowsInPlace(const Product& p, size_t row, const DotPanel& panel) {
  return {Bits(p.a) + row * p.a_row + panel.begin, p.a_row, 2};
}

// A copy of at most kRows rows, where neighbouring terms are not neighbours or
// one is missing.
class DotCopy {
 public:
  DotRows Take(const Product& p, size_t row, size_t rows,
               const DotPanel& panel) {
    const uint16_t* a = Bits(p.a) + row * p.a_row + panel.begin * p.a_depth;
    if (p.a_depth != 1) {
      PackLines(a, p.a_depth, panel.terms, rows, kRows, room_);
      return {reinterpret_cast<const uint16_t*>(room_), 2, 2 * kRows};
    }
    for (size_t r = 0; r < rows; ++r) {
      uint32_t* to = room_ + r * kPanelDepth / 2;
      to[panel.pairs() - 1] = 0;
      std::memcpy(to, a + r * p.a_row, panel.terms * sizeof(uint16_t));
    }
    return {reinterpret_cast<const uint16_t*>(room_), kPanelDepth, 2};
  }

 private:
  alignas(64) uint32_t room_[kRows * kPanelDepth / 2];
};

// A strip of one panel on its way to C. What its sums are added to, and where
// they go: C's addend, the sums so far, and C, in turn.
struct DotStage {
  const Product& p;
  size_t column;  // of C
  size_t columns;
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
  const size_t columns = stage.columns;
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
        stage, (row + r) * stage.p.cols + stage.column,
        sums + r * kStripColumns,
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

// Where vectors of a strip from column `c` on go straight from registers, for
// rows from `row` on.
TileTarget TargetOf(const DotStage& stage, size_t row, size_t c) {
  const size_t at = row * stage.p.cols + stage.column + c;
  TileTarget target = {nullptr, stage.p.cols, nullptr, stage.p.cols,
                       !stage.first};
  if (stage.p.c.dtype() == DType::kF32) {
    target.sums = stage.p.c.f32() + at;
    return target;
  }
  if (stage.kept != nullptr) {
    target.sums = stage.kept + c;
    target.sums_row = stage.columns_apart;
  }
  if (stage.last) target.to = stage.p.c.halves(DType::kBF16) + at;
  return target;
}

// Some rows over one strip, at most `rows`; returns how many. `row` counts in
// `from`, `c_row` in C.
template <size_t kWide>
size_t SumStrip(const DotRows& from, size_t row, size_t rows, size_t c_row,
                const DotPanel& panel, size_t s, Next& next,
                const DotStage& stage) {
  constexpr size_t kV = kWide < kTileVectors ? kWide : kTileVectors;
  const bool straight = stage.columns == kWide * kLanes &&
                        (!stage.first || !stage.p.addend.is_there());
  alignas(64) float sums[kTileRows * kStripColumns];
  size_t done = 0;
  for (size_t v = 0; v < kWide; v += kV) {
    const size_t c = v * kLanes;
    const TileTarget target =
        straight ? TargetOf(stage, c_row, c)
                 : TileTarget{sums + c, kStripColumns, nullptr, 0, false};
    done = SumRows<kV>(from, row, rows, panel.strip(s) + c, kWide * kLanes,
                       panel.pairs(), next, target);
  }
  if (!straight) FinishRows(stage, c_row, done, sums);
  return done;
}

// All sums of rows [row, row + rows) of C over one strip; `from` begins there.
void SumRowsOfStrip(const DotRows& from, size_t row, size_t rows,
                    const DotPanel& panel, size_t s, Next& next,
                    DotStage stage) {
  const auto sum = panel.width(s) == kLanes ? SumStrip<1> : SumStrip<2>;
  for (size_t r = 0; r < rows;) {
    const size_t done = sum(from, r, rows - r, row + r, panel, s, next, stage);
    if (stage.kept != nullptr) stage.kept += done * stage.columns_apart;
    r += done;
  }
}

// What is asked for while some rows of a block's panel are summed up: their
// successors, and a share of the next panel's columns of B.
struct DotNext {
  const Product& p;
  const ProductBlock& block;
  const DotPanel& panel;
  const ProductBlock& then;  // the next panel's block; without rows: none
  size_t begin;              // its terms
  size_t terms;

  // How often a strip's tiles of so many rows ask.
  size_t Times(size_t rows) const {
    return (rows / kTileRows + 1) * (panel.pairs() / kFetchPairs + 1);
  }

  void SetB(Next& next) const {
    if (then.rows == 0) return;
    next.b = AheadOfB(p, then, begin, terms);
    next.b_rows = next.b.rows() / (Times(block.rows) * panel.strips()) + 1;
  }

  // While rows [row, row + rows) are read where they lie, in the first strip.
  void SetRestOfA(size_t row, size_t rows, Next& next) const {
    const size_t there = HWY_MIN(rows, kTileRows);
    next.a = AheadOfA(p, row + there, rows - there, panel.begin, panel.terms);
    next.a_rows = rows / Times(rows) + 1;
  }

  // While copies of rows [row, row + rows) are read, in all strips.
  void SetNextOfA(size_t row, size_t rows, Next& next) const {
    const size_t left = block.first_row + block.rows - row - rows;
    if (left > 0) {
      next.a = AheadOfA(p, row + rows, HWY_MIN(left, kRows), panel.begin,
                        panel.terms);
    } else if (then.rows > 0) {
      next.a =
          AheadOfA(p, then.first_row, HWY_MIN(then.rows, kRows), begin, terms);
    }
    next.a_rows = next.a.rows() / (Times(rows) * panel.strips()) + 1;
  }
};

// A panel's terms of a block, whose sums so far are `kept` where C does not
// keep them, rows `columns_apart`.
void MultiplyPanel(const Product& p, const ProductBlock& block,
                   const ProductBlock& next_block, const DotPanel& panel,
                   float* kept, size_t columns_apart) {
  DotStage stage = {.p = p,
                    .column = 0,
                    .columns = 0,
                    .columns_apart = columns_apart,
                    .kept = nullptr,
                    .first = panel.begin == 0,
                    .last = panel.begin + panel.terms == p.depth};
  const size_t begin = stage.last ? 0 : panel.begin + panel.terms;
  const DotNext then = {.p = p,
                        .block = block,
                        .panel = panel,
                        .then = stage.last ? next_block : block,
                        .begin = begin,
                        .terms = HWY_MIN(p.depth - begin, kPanelDepth)};
  Next next;
  then.SetB(next);
  const bool in_place = ReadsInPlace(p, panel);
  const size_t step = in_place ? block.rows : kRows;
  for (size_t r = 0; r < block.rows; r += step) {
    const size_t rows = HWY_MIN(block.rows - r, step);
    const size_t row = block.first_row + r;
    DotCopy copy;
    DotRows from;
    if (in_place) {
      from = RowsInPlace(p, row, panel);
      then.SetRestOfA(row, rows, next);
    } else {
      from = copy.Take(p, row, rows, panel);
      then.SetNextOfA(row, rows, next);
    }
    for (size_t s = 0; s < panel.strips(); ++s) {
      const size_t first = s * kStripColumns;
      stage.column = block.first_column + first;
      stage.columns = HWY_MIN(block.columns - first, kStripColumns);
      if (kept != nullptr) stage.kept = kept + r * columns_apart + first;
      SumRowsOfStrip(from, row, rows, panel, s, next, stage);
    }
  }
}

}  // namespace

// All terms of a block. `next` is asked for ahead, if it has rows.
void MultiplyBlock(const Product& p, const dot::ProductLayout& layout,
                   const ProductBlock& block, const ProductBlock& next,
                   float* scratch) {
  DotPanel panel;
  panel.data = reinterpret_cast<uint32_t*>(scratch);
  panel.vectors = (block.columns + kLanes - 1) / kLanes;
  float* kept = layout.sums > 0 ? scratch + layout.sums : nullptr;
  for (panel.begin = 0; panel.begin < p.depth; panel.begin += kPanelDepth) {
    panel.terms = HWY_MIN(p.depth - panel.begin, kPanelDepth);
    PackPanel(p, block, panel);
    MultiplyPanel(p, block, next, panel, kept, layout.columns);
  }
}

THIMBLE_DOT_END
