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
  int64_t halo = 0;        // further rows that taps reach
  int64_t block_rows = 0;  // of positions that a tile serves

  int64_t blocks() const { return conv::CeilDiv(rows, block_rows); }
  int64_t count() const { return count_h * count_w; }
  int64_t plane() const { return (block_rows + halo) * cols; }
  // A source row, one line for each parity of columns, between zeros. Column
  // `col` is element col / step + margin() of line col % step.
  int64_t margin() const {
    return conv::CeilDiv(std::max<int64_t>(0, pad_w), step);
  }
  int64_t line() const {
    const int64_t reach = std::max<int64_t>(0, count_w - 1 - pad_w) / step;
    const int64_t most = std::max(conv::CeilDiv(src_width, step), cols + reach);
    return conv::RoundUp(margin() + most, kVector) + kVector;
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
  return planes;
}
// From a position to what tap (kh, kw) reads there.
inline int64_t ForwardOffset(const Planes& planes, int64_t kh, int64_t kw) {
  const int64_t plane = kh % planes.step * planes.count_w + kw;
  return plane * planes.plane() + kh / planes.step * planes.cols;
}

}  // namespace thimble::kernels::dot
