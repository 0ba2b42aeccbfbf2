// SPDX-License-Identifier: Apache-2.0
//
// Which pixels the taps of a direct convolution by dot products read (direct.h,
// direct_weight.h): one plane for each kernel column and parity of rows. Pure
// functions of the shape. Internal to convolutions.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/conv/conv.h"
#include "kernels/conv/tile.h"

namespace thimble::kernels::dot {

inline constexpr int64_t kVector = 16;

// The planes of a tile: row i, column j of plane (a, b) is the source's row
// step * (first_row + i) + a - pad_h, column step * j + b - pad_w, or zero
// where there is none.
struct Planes {
  int64_t src_height = 0;
  int64_t src_width = 0;
  int64_t step = 1;
  int64_t count_h = 1;
  int64_t count_w = 1;
  int64_t pad_h = 0;  // may be negative
  int64_t pad_w = 0;
  int64_t rows = 0;  // of positions of the whole image
  int64_t cols = 0;
  int64_t halo = 0;        // further rows that taps reach, in planes (0, b)
  int64_t odd_halo = 0;    // and in planes (1, b)
  int64_t block_rows = 0;  // of positions that a tile serves

  int64_t blocks() const { return conv::CeilDiv(rows, block_rows); }
  int64_t count() const { return count_h * count_w; }
  int64_t halo_of(int64_t a) const { return a == 0 ? halo : odd_halo; }
  int64_t plane(int64_t a) const { return (block_rows + halo_of(a)) * cols; }
  // Of all planes, and where plane (a, b) begins in them.
  int64_t words() const {
    return count_w * (plane(0) + (count_h > 1 ? plane(1) : 0));
  }
  int64_t plane_at(int64_t a, int64_t b) const {
    return b * plane(a) + (a == 0 ? 0 : count_w * plane(0));
  }
  // Rows are positions one after the other in the source too.
  bool flat() const {
    return step == 1 && count() == 1 && pad_h == 0 && pad_w == 0 && halo == 0 &&
           cols == src_width;
  }
  // Rows of which 16 neighbouring positions are at most.
  int64_t vector_rows() const {
    if (flat() || cols % kVector == 0) return 1;
    return kVector % cols == 0 ? kVector / cols
                               : 1 + conv::CeilDiv(kVector - 1, cols);
  }
};

// Of the forward pass: a kernel row reads a parity of rows.
inline Planes ForwardPlanes(const Conv2dShape& s) {
  Planes planes;
  planes.src_height = s.in_height;
  planes.src_width = s.in_width;
  planes.step = s.stride;
  planes.count_h = std::min(s.stride, s.kernel_h);
  planes.count_w = s.kernel_w;
  planes.pad_h = planes.pad_w = s.padding;
  planes.rows = s.out_height();
  planes.cols = s.out_width();
  planes.halo = (s.kernel_h - 1) / s.stride;
  planes.odd_halo = std::max<int64_t>(0, s.kernel_h - 2) / s.stride;
  return planes;
}
// From a position to what tap (kh, kw) reads there.
inline int64_t ForwardOffset(const Planes& planes, int64_t kh, int64_t kw) {
  return planes.plane_at(kh % planes.step, kw) + kh / planes.step * planes.cols;
}

// Bit i becomes bit 2 * i, for i < 16.
constexpr uint32_t SpreadBits(uint32_t v) {
  v = (v | v << 8) & 0x00FF00FFu;
  v = (v | v << 4) & 0x0F0F0F0Fu;
  v = (v | v << 2) & 0x33333333u;
  return (v | v << 1) & 0x55555555u;
}

// What lanes of a vector of 16 positions read of one source row: lane i reads
// the channel's element at + step * i, where bit step * i of `there` is set.
// The others are zero, or those of another row.
struct RowPiece {
  int32_t at;
  uint32_t there;
};

// The pieces of `vectors` vectors, or fewer, of planes [first, first + count),
// from position `begin` on: vector_rows() of each, and the lanes that any of
// them has.
struct PieceList {
  static constexpr int64_t kMost = 256;

  // As many planes as there is room for, then as many vectors, two at least.
  PieceList(const Planes& planes, int64_t tile_vectors)
      : per_vector(planes.vector_rows()),
        most_planes(std::min(planes.count(), kMost / per_vector / 2)),
        vectors(std::min(kMost / per_vector / most_planes / 2 * 2,
                         conv::RoundUp(tile_vectors, 2))) {}

  const RowPiece* PiecesOf(int64_t plane) const {
    return pieces + (plane - first) * vectors * per_vector;
  }
  const uint16_t* LanesOf(int64_t plane) const {
    return lanes + (plane - first) * vectors;
  }

  int64_t per_vector;
  int64_t most_planes;
  int64_t vectors;
  int64_t first = 0;
  int64_t count = 0;
  int64_t begin = 0;
  RowPiece pieces[kMost];
  uint16_t lanes[kMost];
};

// Positions [begin, end) of a row of plane column b that are in the source.
struct ColumnRange {
  int64_t begin;
  int64_t end;
};
inline ColumnRange ColumnsThere(const Planes& planes, int64_t b) {
  const int64_t before = std::max<int64_t>(0, planes.pad_w - b);
  const int64_t behind =
      std::max<int64_t>(0, planes.src_width + planes.pad_w - b);
  return {conv::CeilDiv(before, planes.step),
          std::min(planes.cols, conv::CeilDiv(behind, planes.step))};
}

// Writes the list's pieces of one plane, of which `rows` rows from position row
// `first_row` on are wanted.
inline void ListPieces(const Planes& planes, int64_t plane, int64_t first_row,
                       int64_t rows, PieceList& list) {
  const int64_t a = plane / planes.count_w, b = plane % planes.count_w;
  const bool flat = planes.flat();
  const int64_t cols = flat ? rows * planes.cols : planes.cols;
  const int64_t most = flat ? 1 : rows;
  const ColumnRange range =
      flat ? ColumnRange{0, cols} : ColumnsThere(planes, b);
  int64_t row = list.begin / cols;
  int64_t col = list.begin % cols;
  const int64_t slot = (plane - list.first) * list.vectors;
  RowPiece* to = list.pieces + slot * list.per_vector;
  for (int64_t v = 0; v < list.vectors && row < most; ++v) {
    uint32_t lanes = 0;
    int64_t lane = 0;
    for (int64_t i = 0; i < list.per_vector; ++i) {
      *to = {0, 0};
      if (lane < kVector && row < most) {
        const int64_t n = std::min(kVector - lane, cols - col);
        const int64_t source =
            planes.step * (first_row + row) + a - planes.pad_h;
        const int64_t begin = std::clamp(range.begin - col, int64_t{0}, n);
        const int64_t end = std::clamp(range.end - col, int64_t{0}, n);
        if (source >= 0 && source < planes.src_height && begin < end) {
          const uint32_t there = ((1u << end) - (1u << begin)) << lane;
          lanes |= there;
          *to = {
              static_cast<int32_t>(source * planes.src_width + b -
                                   planes.pad_w + planes.step * (col - lane)),
              planes.step == 1 ? there : SpreadBits(there)};
        }
        lane += n;
        col += n;
        if (col == cols) {
          col = 0;
          ++row;
        }
      }
      ++to;
    }
    list.lanes[slot + v] = static_cast<uint16_t>(lanes);
  }
}

// Calls load(list) until the lists were those of all planes, of which `rows`
// rows from `first_row` on, and what taps reach behind them, are wanted.
template <typename Load>
void ForPieceLists(const Planes& planes, int64_t first_row, int64_t rows,
                   const Load& load) {
  const int64_t most = (rows + planes.halo) * planes.cols;
  PieceList list(planes, conv::CeilDiv(most, kVector));
  for (; list.first < planes.count(); list.first += list.most_planes) {
    list.count = std::min(list.most_planes, planes.count() - list.first);
    for (list.begin = 0; list.begin < most;
         list.begin += list.vectors * kVector) {
      for (int64_t i = 0; i < list.count; ++i) {
        const int64_t plane = list.first + i;
        ListPieces(planes, plane, first_row,
                   rows + planes.halo_of(plane / planes.count_w), list);
      }
      load(list);
    }
  }
}

}  // namespace thimble::kernels::dot
