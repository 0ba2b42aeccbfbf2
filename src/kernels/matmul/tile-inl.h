// SPDX-License-Identifier: Apache-2.0
//
// Panels of B, which are f32 however B is stored, and the register tiles that
// are multiplied with them. Included once per SIMD target, after
// <hwy/highway.h>; hence no `#pragma once`.
#if defined(THIMBLE_KERNELS_MATMUL_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef THIMBLE_KERNELS_MATMUL_TILE_INL_H_
#undef THIMBLE_KERNELS_MATMUL_TILE_INL_H_
#else
#define THIMBLE_KERNELS_MATMUL_TILE_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstddef>
#include <cstring>
#include <type_traits>

#include "kernels/convert-inl.h"
#include "kernels/matmul/product.h"
#include "kernels/simd-inl.h"
#include "kernels/storage.h"
#include "kernels/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

using matmul::kPanelVectors;
using matmul::Product;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// Rows of the register tile: with two vectors per row the accumulators, the two
// vectors of B and one broadcast fill 16 registers, or 19 of 32.
#if HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_AVX2
constexpr size_t kTileRows = 6;
#else
constexpr size_t kTileRows = 8;
#endif

// Row blocks, of kTileRows each, and panels: half-open ranges of both.
struct Region {
  size_t first_panel, last_panel;
  size_t first_block, last_block;
};

// n elements, each in its type.
template <typename From, typename To>
HWY_INLINE void Convert(size_t n, const From* from, To* to) {
  const D d;
  const size_t lanes = hn::Lanes(d);
  const size_t rest = n % lanes;
  const size_t whole = n - rest;
  for (size_t i = 0; i < whole; i += lanes) {
    StoreAs(LoadAs(d, from + i), d, to + i);
  }
  if (rest == 0) return;
  StoreFirstAs(LoadFirstAs(d, from + whole, rest), d, to + whole, rest);
}

// A block of rows of B and columns [first, first + count), as it is packed:
// [depth][vectors * lanes], zeros past `count`.
struct Panel {
  float* data;
  size_t first;
  size_t count;
  size_t vectors;  // 1 or kPanelVectors
  size_t depth_begin;
  size_t depth;

  size_t width() const { return vectors * hn::Lanes(D()); }
};

HWY_INLINE Panel PanelOf(const Product& p, size_t index, size_t depth_begin,
                         size_t depth, float* data) {
  const size_t lanes = hn::Lanes(D());
  Panel panel;
  panel.data = data;
  panel.first = index * kPanelVectors * lanes;
  panel.count = HWY_MIN(p.cols - panel.first, kPanelVectors * lanes);
  panel.vectors = panel.count <= lanes ? 1 : kPanelVectors;
  panel.depth_begin = depth_begin;
  panel.depth = depth;
  return panel;
}

// Rows of B are columns of the panel. Those of 16 bits become f32 in squares of
// one cache line by the most columns of a panel.
template <typename T>
HWY_INLINE void PackTransposed(const Panel& panel, const T* from,
                               size_t stride) {
  const size_t width = panel.width();
  if constexpr (std::is_same_v<T, float>) {
    Transpose(panel.count, panel.depth, from, stride, panel.data, width);
  } else {
    constexpr size_t kSquare = 64 / sizeof(T);
    static_assert(kSquare >= kPanelVectors * matmul::kMostLanes);
    HWY_ALIGN float square[kSquare * kSquare];
    for (size_t k = 0; k < panel.depth; k += kSquare) {
      const size_t depth = HWY_MIN(panel.depth - k, kSquare);
      for (size_t c = 0; c < panel.count; ++c) {
        Convert(depth, from + c * stride + k, square + c * kSquare);
      }
      Transpose(panel.count, depth, square, kSquare, panel.data + k * width,
                width);
    }
  }
}

// `panels` of the same depth, of which the columns are neighbours. Rows of B
// are read once for all of them.
void Pack(const Product& p, const Panel* panels, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (panels[i].count == panels[i].width()) continue;
    std::memset(panels[i].data, 0,
                panels[i].depth * panels[i].width() * sizeof(float));
  }
  WithFloatType(p.b.dtype(), [&](auto type) HWY_ATTR {
    using T = decltype(type);
    const auto* b = p.b.As<T>();
    if (p.b_transposed) {
      for (size_t i = 0; i < count; ++i) {
        PackTransposed(panels[i],
                       b + panels[i].first * p.b_stride + panels[i].depth_begin,
                       p.b_stride);
      }
      return;
    }
    for (size_t k = 0; k < panels[0].depth; ++k) {
      const T* row = b + (panels[0].depth_begin + k) * p.b_stride;
      for (size_t i = 0; i < count; ++i) {
        const Panel& panel = panels[i];
        float* to = panel.data + k * panel.width();
        if constexpr (std::is_same_v<T, float>) {
          std::memcpy(to, row + panel.first, panel.count * sizeof(float));
        } else {
          Convert(panel.count, row + panel.first, to);
        }
      }
    }
  });
}

// c = addend + v, or v where there is no addend, of the first `count` lanes.
HWY_INLINE void StoreSum(V v, const float* addend, float* c, size_t count) {
  const D d;
  if (count >= hn::Lanes(d)) {
    hn::StoreU(addend == nullptr ? v : hn::Add(hn::LoadU(d, addend), v), d, c);
  } else if (count > 0) {
    StoreFirst(addend == nullptr ? v : hn::Add(LoadFirst(d, addend, count), v),
               d, c, count);
  }
}

// What a register tile reads besides its panel, and where it goes: its first
// row of A from the panel's depth on, its first element of C.
struct Tile {
  const float* a;
  size_t a_row;
  size_t a_depth;
  float* c;
  const float* addend;  // as c, or null
  size_t c_row;
};

// One register tile: kRows rows of C, all columns of the panel. Every element
// is the sum over the panel's depth in index order, added to the addend.
template <size_t kRows, size_t kVectors>
void MultiplyTile(const Tile& tile, const Panel& panel) {
  const D d;
  const size_t lanes = hn::Lanes(d);
  const size_t a_row = tile.a_row;
  const size_t a_depth = tile.a_depth;
  const float* a = tile.a;
  const float* b = panel.data;
  V sum[kRows][kVectors];
  for (size_t r = 0; r < kRows; ++r) {
    hwy::Prefetch(tile.c + r * tile.c_row);
    for (size_t v = 0; v < kVectors; ++v) sum[r][v] = hn::Zero(d);
  }
  for (size_t k = panel.depth; k != 0; --k) {
    V in[kVectors];
    for (size_t v = 0; v < kVectors; ++v) in[v] = hn::LoadU(d, b + v * lanes);
    for (size_t r = 0; r < kRows; ++r) {
      const V factor = hn::Set(d, a[r * a_row]);
      for (size_t v = 0; v < kVectors; ++v) {
        sum[r][v] = hn::MulAdd(factor, in[v], sum[r][v]);
      }
    }
    a += a_depth;
    b += kVectors * lanes;
  }
  for (size_t r = 0; r < kRows; ++r) {
    const size_t at = r * tile.c_row;
    for (size_t v = 0; v < kVectors; ++v) {
      const size_t done = HWY_MIN(v * lanes, panel.count);
      StoreSum(sum[r][v],
               tile.addend == nullptr ? nullptr : tile.addend + at + done,
               tile.c + at + done, panel.count - done);
    }
  }
}

template <size_t kVectors, size_t kRows = kTileRows>
HWY_INLINE void MultiplyRowsOf(const Tile& tile, const Panel& panel,
                               size_t count) {
  if (count == kRows) {
    MultiplyTile<kRows, kVectors>(tile, panel);
  } else if constexpr (kRows > 1) {
    MultiplyRowsOf<kVectors, kRows - 1>(tile, panel, count);
  }
}

// The first `count` <= kTileRows rows of a tile.
HWY_INLINE void MultiplyRows(const Tile& tile, const Panel& panel,
                             size_t count) {
  if (panel.vectors == 1) {
    MultiplyRowsOf<1>(tile, panel, count);
  } else {
    MultiplyRowsOf<kPanelVectors>(tile, panel, count);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
