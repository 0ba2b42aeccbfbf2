// SPDX-License-Identifier: Apache-2.0
//
// The plane that a body of pooling works on: a whole one, or a strip of one
// with the inputs or windows that go with it. Internal to the family. Pure
// functions.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/pool/pool.h"

namespace thimble::kernels::pool {

struct Range {
  int64_t begin;
  int64_t end;

  int64_t size() const { return end - begin; }
};

// Window (oh, ow) has its first place at row oh * stride − top and column ow *
// stride − left. Whole planes have padding there; a strip may begin between
// windows, which makes it negative.
struct PoolPlane {
  int64_t kernel;
  int64_t stride;
  int64_t top;
  int64_t left;
  int64_t height;
  int64_t width;
  int64_t out_height;
  int64_t out_width;
};

inline PoolPlane WholePlane(const PoolShape& s) {
  return {s.kernel, s.stride, s.padding,      s.padding,
          s.height, s.width,  s.out_height(), s.out_width()};
}

// The windows over input h along one axis, of `outputs`: each has it at place
// h + padding − window * stride.
inline Range WindowsOver(const PoolPlane& s, int64_t h, int64_t padding,
                         int64_t outputs) {
  const int64_t before = h + padding - s.kernel;  // too far for its window
  const int64_t first = before < 0 ? 0 : before / s.stride + 1;
  const int64_t last = h + padding < 0 ? -1 : (h + padding) / s.stride;
  return {first, std::min(last + 1, outputs)};
}

// ---- Strips: what of a plane fits the stack as f32

// Elements of a strip, on each side.
inline constexpr int64_t kStripSize = 2048;

struct Strip {
  Range rows, columns;          // inputs
  Range out_rows, out_columns;  // windows

  // The strip of `whole` as a plane of its own.
  PoolPlane Plane(const PoolPlane& whole) const {
    return {whole.kernel,
            whole.stride,
            whole.top + rows.begin - out_rows.begin * whole.stride,
            whole.left + columns.begin - out_columns.begin * whole.stride,
            rows.size(),
            columns.size(),
            out_rows.size(),
            out_columns.size()};
  }
};

// The largest part of rows × columns, by halves, of at most kStripSize elements
// here and on the other side, where n neighbours have across(n).
// REQUIRES: across(1)² <= kStripSize.
template <typename F>
void FitStrip(int64_t& rows, int64_t& columns, const F& across) {
  while (columns > kStripSize || across(1) * across(columns) > kStripSize) {
    columns = (columns + 1) / 2;
  }
  rows = std::min(rows, kStripSize / columns);
  while (across(rows) * across(columns) > kStripSize) rows = (rows + 1) / 2;
}

// Calls run(rows, columns) for parts of height × width.
template <typename F>
void ForParts(int64_t height, int64_t width, int64_t rows, int64_t columns,
              const F& run) {
  for (int64_t h = 0; h < height; h += rows) {
    for (int64_t w = 0; w < width; w += columns) {
      run(Range{h, std::min(height, h + rows)},
          Range{w, std::min(width, w + columns)});
    }
  }
}

// Calls run(strip) for strips of windows with all inputs under them.
template <typename F>
void ForStripsOfWindows(const PoolPlane& s, const F& run) {
  const auto under = [&](Range windows, int64_t padding, int64_t extent) {
    const int64_t first = windows.begin * s.stride - padding;
    const int64_t last = (windows.end - 1) * s.stride - padding;
    return Range{std::max<int64_t>(0, first),
                 std::min(extent, last + s.kernel)};
  };
  int64_t rows = s.out_height, columns = s.out_width;
  FitStrip(rows, columns,
           [&](int64_t n) { return (n - 1) * s.stride + s.kernel; });
  ForParts(s.out_height, s.out_width, rows, columns, [&](Range h, Range w) {
    run(Strip{under(h, s.top, s.height), under(w, s.left, s.width), h, w});
  });
}

// Calls run(strip) for strips of inputs with all windows over them, if any.
template <typename F>
void ForStripsOfInputs(const PoolPlane& s, const F& run) {
  const auto over = [&](Range inputs, int64_t padding, int64_t outputs) {
    const int64_t first = WindowsOver(s, inputs.begin, padding, outputs).begin;
    const int64_t end = WindowsOver(s, inputs.end - 1, padding, outputs).end;
    return Range{first, std::max(first, end)};
  };
  int64_t rows = s.height, columns = s.width;
  FitStrip(rows, columns,
           [&](int64_t n) { return (n + s.kernel - 2) / s.stride + 1; });
  // Strips that begin like the plane are faster.
  const auto align = [&](int64_t& n, int64_t all) {
    if (n < all && n > s.stride) n -= n % s.stride;
  };
  align(rows, s.height);
  align(columns, s.width);
  ForParts(s.height, s.width, rows, columns, [&](Range h, Range w) {
    run(Strip{h, w, over(h, s.top, s.out_height),
              over(w, s.left, s.out_width)});
  });
}

}  // namespace thimble::kernels::pool
