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

#include <hwy/highway.h>

#include <cstddef>

#include "kernels/matmul/product.h"
#include "kernels/matmul/tile-inl.h"
#include "kernels/storage.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

using matmul::kPanelDepth;
using matmul::StagedScratch;

// Panels of a block and the rows of C that meet them.
struct StagedBlock {
  static constexpr size_t kMostPanels =
      matmul::kMostStagedColumns / (kPanelVectors * hn::MaxLanes(D()));

  Panel panels[kMostPanels];
  size_t panel_count = 0;
  size_t first_row = 0;
  // Of C: columns, from the first panel's on.
  size_t columns = 0;
  // Null where C is f32 and holds its own sums.
  float* sums = nullptr;
  size_t sums_row = 0;
};

// A tile's rows of A that lie one after the other, transposed: [depth] of
// kTileRows. Reads whole vectors, which go past the tile's rows into the next
// ones, or into the next of A's columns, wherever that is still inside of A.
template <typename T>
HWY_INLINE void StageColumns(const Product& p, const T* a, size_t row,
                             size_t count, const Panel& panel, float* to) {
  const hn::CappedTag<float, matmul::kMostTileRows> d;
  const size_t lanes = hn::Lanes(d);
  const size_t whole = (kTileRows + lanes - 1) / lanes * lanes;
  const size_t end = p.depth * p.a_depth;
  for (size_t k = 0; k < panel.depth; ++k) {
    const size_t at = (panel.depth_begin + k) * p.a_depth + row;
    float* line = to + k * kTileRows;
    if (at + whole <= end) {
      for (size_t r = 0; r < whole; r += lanes) {
        hn::StoreU(LoadAs(d, a + at + r), d, line + r);
      }
    } else {
      Convert(count, a + at, line);
    }
  }
}

// The tile's rows of A from the panel's depth on: where they lie, or, made f32,
// in `room`.
HWY_INLINE void StageRows(const Product& p, size_t row, size_t count,
                          const Panel& panel, float* room, Tile& tile) {
  const size_t first = row * p.a_row + panel.depth_begin * p.a_depth;
  if (p.a.dtype() == DType::kF32) {
    tile.a = p.a.f32() + first;
    tile.a_row = p.a_row;
    tile.a_depth = p.a_depth;
    return;
  }
  const bool columns = p.a_row == 1 && p.a_depth != 1;
  tile.a = room;
  tile.a_row = columns ? 1 : kPanelDepth;
  tile.a_depth = columns ? kTileRows : 1;
  WithFloatType(p.a.dtype(), [&](auto type) HWY_ATTR {
    using T = decltype(type);
    const auto* a = static_cast<const T*>(p.a.data());
    if (columns) {
      StageColumns(p, a, row, count, panel, room);
      return;
    }
    for (size_t r = 0; r < count; ++r) {
      Convert(panel.depth, a + first + r * p.a_row, room + r * kPanelDepth);
    }
  });
}

// Rows of the block's sums, from and to what is stored.
HWY_INLINE void LoadSums(const Product& p, const StagedBlock& block, size_t row,
                         size_t count, float* sums) {
  WithFloatType(p.addend.dtype(), [&](auto type) HWY_ATTR {
    using T = decltype(type);
    const auto* from = static_cast<const T*>(p.addend.data()) + row * p.cols +
                       block.panels[0].first;
    for (size_t r = 0; r < count; ++r) {
      Convert(block.columns, from + r * p.cols, sums + r * block.sums_row);
    }
  });
}

HWY_INLINE void StoreSums(const Product& p, const StagedBlock& block,
                          size_t row, size_t count, const float* sums) {
  WithFloatType(p.c.dtype(), [&](auto type) HWY_ATTR {
    using T = decltype(type);
    auto* to =
        static_cast<T*>(p.c.data()) + row * p.cols + block.panels[0].first;
    for (size_t r = 0; r < count; ++r) {
      Convert(block.columns, sums + r * block.sums_row, to + r * p.cols);
    }
  });
}

// Rows [row, row + count) of C, count <= kTileRows, for the depth of the
// block's panels.
void MultiplyStagedRows(const Product& p, const StagedBlock& block, size_t row,
                        size_t count) {
  // Vectors of StageColumns go past the last line.
  HWY_ALIGN float room[kTileRows * kPanelDepth + matmul::kMostTileRows];
  const size_t depth_begin = block.panels[0].depth_begin;
  const bool is_last = depth_begin + block.panels[0].depth == p.depth;
  Tile tile;
  StageRows(p, row, count, block.panels[0], room, tile);
  float* c = nullptr;
  const float* addend = nullptr;
  if (block.sums == nullptr) {
    const size_t at = row * p.cols + block.panels[0].first;
    c = p.c.f32() + at;
    tile.c_row = p.cols;
    if (p.addend.is_there()) addend = p.addend.f32() + at;
  } else {
    const bool is_only = p.depth <= kPanelDepth;
    c = block.sums + (is_only ? 0 : (row - block.first_row) * block.sums_row);
    tile.c_row = block.sums_row;
    if (depth_begin == 0 && p.addend.is_there()) {
      LoadSums(p, block, row, count, c);
      addend = c;
    }
  }
  if (depth_begin != 0) addend = c;
  for (size_t i = 0; i < block.panel_count; ++i) {
    const size_t at = block.panels[i].first - block.panels[0].first;
    tile.c = c + at;
    tile.addend = addend == nullptr ? nullptr : addend + at;
    MultiplyRows(tile, block.panels[i], count);
  }
  if (block.sums != nullptr && is_last) StoreSums(p, block, row, count, c);
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
  for (size_t k = 0; k < p.depth; k += kPanelDepth) {
    const size_t depth = HWY_MIN(p.depth - k, kPanelDepth);
    float* data = scratch;
    for (size_t i = 0; i < block.panel_count; ++i) {
      block.panels[i] = PanelOf(p, region.first_panel + i, k, depth, data);
      data += depth * block.panels[i].width();
    }
    const Panel& last = block.panels[block.panel_count - 1];
    block.columns = last.first + last.count - block.panels[0].first;
    Pack(p, block.panels, block.panel_count);
    for (size_t row = block.first_row; row < last_row; row += kTileRows) {
      MultiplyStagedRows(p, block, row, HWY_MIN(last_row - row, kTileRows));
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
