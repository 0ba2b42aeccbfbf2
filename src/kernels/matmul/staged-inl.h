// SPDX-License-Identifier: Apache-2.0
//
// Products of which a tensor has 16 bits (product.h, "Staged"). Their sums are
// those of the same values stored as f32, to the bit; a narrow C is rounded
// when they are complete. Included once per SIMD target, after
// <hwy/highway.h>; hence no `#pragma once`.
#if defined(THIMBLE_KERNELS_MATMUL_STAGED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef THIMBLE_KERNELS_MATMUL_STAGED_INL_H_
#undef THIMBLE_KERNELS_MATMUL_STAGED_INL_H_
#else
#define THIMBLE_KERNELS_MATMUL_STAGED_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "kernels/matmul/product.h"
#include "kernels/matmul/tile-inl.h"
#include "kernels/storage.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

using matmul::kGroupRows;
using matmul::kPanelDepth;
using matmul::StagedScratch;

// A rectangle of a tensor that will be read next. Its lines are asked for a few
// at a time, between tiles: short rows far apart are nothing that a CPU
// foresees, and staging has no arithmetic to hide their latency.
class Ahead {
 public:
  Ahead() = default;
  // `rows` of `count` elements, `stride` apart.
  Ahead(const ConstTensor& tensor, size_t first, size_t rows, size_t stride,
        size_t count)
      : data_(static_cast<const uint8_t*>(
            tensor.From(static_cast<int64_t>(first)).data())),
        rows_(rows),
        stride_(BytesFor(tensor.dtype(), static_cast<int64_t>(stride))),
        bytes_(BytesFor(tensor.dtype(), static_cast<int64_t>(count))) {}

  // One of `shares`; all of them are the whole rectangle.
  HWY_INLINE void Fetch(size_t shares) {
    constexpr size_t kLine = 64;
    const size_t last = HWY_MIN(rows_, next_ + rows_ / shares + 1);
    for (; next_ < last; ++next_) {
      const uint8_t* row = data_ + next_ * stride_;
      for (size_t at = 0; at < bytes_; at += kLine) hwy::Prefetch(row + at);
      hwy::Prefetch(row + bytes_ - 1);
    }
  }

 private:
  const uint8_t* data_ = nullptr;
  size_t rows_ = 0;
  size_t stride_ = 0;
  size_t bytes_ = 0;
  size_t next_ = 0;
};

// Rows [row, row + count) of A, `depth` from depth_begin on.
HWY_INLINE Ahead AheadOfA(const Product& p, size_t row, size_t count,
                          size_t depth_begin, size_t depth) {
  const size_t first = row * p.a_row + depth_begin * p.a_depth;
  return p.a_depth == 1 ? Ahead(p.a, first, count, p.a_row, depth)
                        : Ahead(p.a, first, depth, p.a_depth, count);
}

// `columns` of B from `first` on, `depth` from depth_begin on.
HWY_INLINE Ahead AheadOfB(const Product& p, size_t first, size_t columns,
                          size_t depth_begin, size_t depth) {
  return p.b_transposed ? Ahead(p.b, first * p.b_stride + depth_begin, columns,
                                p.b_stride, depth)
                        : Ahead(p.b, depth_begin * p.b_stride + first, depth,
                                p.b_stride, columns);
}

// Panels of a block and the rows of C that meet them.
struct StagedBlock {
  static constexpr size_t kMostPanels =
      matmul::kMostStagedColumns / (kPanelVectors * hn::MaxLanes(D()));

  Panel panels[kMostPanels];
  size_t panel_count = 0;
  size_t first_row = 0;
  size_t groups = 0;
  // Of C: columns, from the first panel's on.
  size_t columns = 0;
  // Null where C is f32 and holds its own sums.
  float* sums = nullptr;
  size_t sums_row = 0;
};

// Rows of A as f32, one register tile after the other.
class Group {
 public:
  // Rows [row, row + count) from the panel's depth on.
  HWY_INLINE Group(const Product& p, size_t row, size_t count,
                   const Panel& panel) {
    const size_t first = row * p.a_row + panel.depth_begin * p.a_depth;
    if (p.a.dtype() == DType::kF32) {  // where they lie
      data_ = p.a.f32() + first;
      tile_ = kTileRows * p.a_row;
      row_ = p.a_row;
      depth_ = p.a_depth;
      return;
    }
    const bool columns = p.a_row == 1 && p.a_depth != 1;
    data_ = room_;
    tile_ = kTile;
    row_ = columns ? 1 : kPanelDepth;
    depth_ = columns ? kTileRows : 1;
    WithFloatType(p.a.dtype(), [&](auto type) HWY_ATTR {
      using T = decltype(type);
      const auto* a = p.a.As<T>();
      if (columns) {
        StageColumns(p, a, row, count, panel);
        return;
      }
      for (size_t r = 0; r < count; ++r) {
        Convert(panel.depth, a + first + r * p.a_row,
                room_ + r / kTileRows * kTile + r % kTileRows * kPanelDepth);
      }
    });
  }

  HWY_INLINE void SetA(size_t tile, Tile& to) const {
    to.a = data_ + tile * tile_;
    to.a_row = row_;
    to.a_depth = depth_;
  }

 private:
  static constexpr size_t kMostVector = 8;
  // Floats of a tile, and what a vector of its last line goes past it.
  static constexpr size_t kTile = kTileRows * kPanelDepth + kMostVector;
  static constexpr size_t kTiles = kGroupRows / kTileRows;
  static_assert(kGroupRows % kTileRows == 0);

  // Rows that are A's columns: for each tile [depth] lines of kTileRows. Reads
  // whole vectors, which go past a tile's rows into the next ones, wherever
  // that is still inside of A; what is there is not used.
  template <typename T>
  HWY_INLINE void StageColumns(const Product& p, const T* a, size_t row,
                               size_t count, const Panel& panel) {
    const hn::CappedTag<float, kMostVector> d;
    const size_t lanes = hn::Lanes(d);
    const size_t whole = (kTileRows + lanes - 1) / lanes * lanes;
    const size_t tiles = (count + kTileRows - 1) / kTileRows;
    const size_t reach = (tiles - 1) * kTileRows + whole;
    const size_t end = p.a_elements > 0 ? p.a_elements : p.depth * p.a_depth;
    constexpr size_t kSoon = 16;  // lines that are on their way at a time
    for (size_t k = 0; k < panel.depth; ++k) {
      const size_t at = (panel.depth_begin + k) * p.a_depth + row;
      hwy::Prefetch(a + HWY_MIN(at + kSoon * p.a_depth, end - 1));
      float* line = room_ + k * kTileRows;
      for (size_t t = 0; t < tiles; ++t) {
        const T* from = a + at + t * kTileRows;
        float* to = line + t * kTile;
        if (at + reach <= end) {
          for (size_t r = 0; r < whole; r += lanes) {
            hn::StoreU(LoadAs(d, from + r), d, to + r);
          }
        } else {
          Convert(HWY_MIN(count - t * kTileRows, kTileRows), from, to);
        }
      }
    }
  }

  const float* data_;
  size_t tile_, row_, depth_;
  HWY_ALIGN float room_[kTiles * kTile];
};

// Rows of the block's sums, from and to what is stored.
HWY_INLINE void LoadSums(const Product& p, const StagedBlock& block, size_t row,
                         size_t count, float* sums) {
  WithFloatType(p.addend.dtype(), [&](auto type) HWY_ATTR {
    using T = decltype(type);
    const auto* from = p.addend.As<T>() + row * p.cols + block.panels[0].first;
    for (size_t r = 0; r < count; ++r) {
      Convert(block.columns, from + r * p.cols, sums + r * block.sums_row);
    }
  });
}

HWY_INLINE void StoreSums(const Product& p, const StagedBlock& block,
                          size_t row, size_t count, const float* sums) {
  WithFloatType(p.c.dtype(), [&](auto type) HWY_ATTR {
    using T = decltype(type);
    auto* to = p.c.As<T>() + row * p.cols + block.panels[0].first;
    for (size_t r = 0; r < count; ++r) {
      Convert(block.columns, sums + r * block.sums_row, to + r * p.cols);
    }
  });
}

// Rows [row, row + count) of C, count <= kGroupRows, for the depth of the
// block's panels. Meanwhile `a` and a part of `b` are fetched.
void MultiplyGroup(const Product& p, const StagedBlock& block, size_t row,
                   size_t count, Ahead a, Ahead& b) {
  const Panel& first = block.panels[0];
  const Group group(p, row, count, first);
  float* c = nullptr;
  size_t c_row = block.sums_row;
  const float* addend = nullptr;
  if (block.sums == nullptr) {
    const size_t at = row * p.cols + first.first;
    c = p.c.f32() + at;
    c_row = p.cols;
    if (p.addend.is_there()) addend = p.addend.f32() + at;
  } else {
    const bool is_only = p.depth <= kPanelDepth;
    c = block.sums + (is_only ? 0 : (row - block.first_row) * c_row);
    if (first.depth_begin == 0 && p.addend.is_there()) {
      LoadSums(p, block, row, count, c);
      addend = c;
    }
  }
  if (first.depth_begin != 0) addend = c;
  const size_t shares =
      block.panel_count * ((count + kTileRows - 1) / kTileRows);
  for (size_t i = 0; i < block.panel_count; ++i) {
    for (size_t r = 0; r < count; r += kTileRows) {
      const size_t at = r * c_row + block.panels[i].first - first.first;
      Tile tile;
      group.SetA(r / kTileRows, tile);
      tile.c = c + at;
      tile.addend = addend == nullptr ? nullptr : addend + at;
      tile.c_row = c_row;
      a.Fetch(shares);
      b.Fetch(shares * block.groups);
      MultiplyRows(tile, block.panels[i], HWY_MIN(count - r, kTileRows));
    }
  }
  if (block.sums != nullptr && first.depth_begin + first.depth == p.depth) {
    StoreSums(p, block, row, count, c);
  }
}

// All terms of a region that is no larger than a block.
void MultiplyStagedBlock(const Product& p, const StagedScratch& layout,
                         const Region& region, float* scratch) {
  StagedBlock block;
  block.panel_count = region.last_panel - region.first_panel;
  block.first_row = region.first_block * kTileRows;
  block.sums_row = layout.columns;
  if (layout.of_sums > 0) block.sums = scratch + layout.of_panels;
  const size_t last_row = HWY_MIN(p.rows, region.last_block * kTileRows);
  block.groups = (last_row - block.first_row + kGroupRows - 1) / kGroupRows;
  for (size_t k = 0; k < p.depth; k += kPanelDepth) {
    const size_t depth = HWY_MIN(p.depth - k, kPanelDepth);
    float* data = scratch;
    for (size_t i = 0; i < block.panel_count; ++i) {
      block.panels[i] = PanelOf(p, region.first_panel + i, k, depth, data);
      data += depth * block.panels[i].width();
    }
    const Panel& first = block.panels[0];
    const Panel& last = block.panels[block.panel_count - 1];
    block.columns = last.first + last.count - first.first;
    Pack(p, block.panels, block.panel_count);
    const size_t next = k + depth;
    const size_t next_depth = HWY_MIN(p.depth - next, kPanelDepth);
    Ahead of_b;
    if (next_depth > 0) {
      of_b = AheadOfB(p, first.first, block.columns, next, next_depth);
    }
    for (size_t row = block.first_row; row < last_row; row += kGroupRows) {
      const size_t count = HWY_MIN(last_row - row, kGroupRows);
      Ahead of_a;
      if (row + count < last_row) {
        of_a = AheadOfA(p, row + count,
                        HWY_MIN(last_row - row - count, kGroupRows), k, depth);
      } else if (next_depth > 0) {
        of_a = AheadOfA(p, block.first_row,
                        HWY_MIN(last_row - block.first_row, kGroupRows), next,
                        next_depth);
      }
      MultiplyGroup(p, block, row, count, of_a, of_b);
    }
  }
}

// All terms of a region.
void MultiplyStaged(const Product& p, const Region& region, float* scratch) {
  const StagedScratch layout(p.rows, p.cols, p.depth, p.c.dtype());
  const size_t panels =
      matmul::StagedColumns(p.cols) / (kPanelVectors * hn::Lanes(D()));
  constexpr size_t kBlocks = matmul::kStagedRows / kTileRows;
  const size_t blocks = region.last_block - region.first_block;
  const size_t parts = (blocks + kBlocks - 1) / kBlocks;
  for (size_t panel = region.first_panel; panel < region.last_panel;
       panel += panels) {
    const size_t last_panel = HWY_MIN(region.last_panel, panel + panels);
    for (size_t part = 0; part < parts; ++part) {
      const Region rows = {panel, last_panel,
                           region.first_block + blocks * part / parts,
                           region.first_block + blocks * (part + 1) / parts};
      MultiplyStagedBlock(p, layout, rows, scratch);
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
