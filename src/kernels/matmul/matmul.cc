// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/matmul/matmul.cc"
#include "kernels/matmul/matmul.h"

#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "kernels/matmul/product.h"
#include "kernels/simd-inl.h"
#include "kernels/target.h"
#include "kernels/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

using matmul::kBlockColumns;
using matmul::kBlockRows;
using matmul::kPanelDepth;
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

// A block of rows of B and columns [first, first + count), as it is packed:
// [depth][vectors * lanes], zeros past `count`.
struct Panel {
  float* data;
  size_t first;
  size_t count;
  size_t vectors;  // 1 or kPanelVectors
  size_t depth_begin;
  size_t depth;
};

void Pack(const Product& p, const Panel& panel) {
  const size_t width = panel.vectors * hn::Lanes(D());
  if (panel.count < width) {
    std::memset(panel.data, 0, panel.depth * width * sizeof(float));
  }
  if (p.b_transposed) {
    const float* from = p.b + panel.first * p.b_stride + panel.depth_begin;
    Transpose(panel.count, panel.depth, from, p.b_stride, panel.data, width);
    return;
  }
  const float* from = p.b + panel.depth_begin * p.b_stride + panel.first;
  for (size_t k = 0; k < panel.depth; ++k) {
    std::memcpy(panel.data + k * width, from + k * p.b_stride,
                panel.count * sizeof(float));
  }
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

// One register tile: kRows rows of C, all columns of the panel. Every element
// is the sum over the panel's depth in index order, added to what earlier
// panels of the same columns gave, and that of the first to the addend.
template <size_t kRows, size_t kVectors>
void MultiplyTile(const Product& p, const Panel& panel, size_t row) {
  const D d;
  const size_t lanes = hn::Lanes(d);
  const size_t a_row = p.a_row;
  const size_t a_depth = p.a_depth;
  const float* a = p.a + row * a_row + panel.depth_begin * a_depth;
  const float* b = panel.data;
  V sum[kRows][kVectors];
  for (size_t r = 0; r < kRows; ++r) {
    hwy::Prefetch(p.c + (row + r) * p.cols + panel.first);
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
  const float* addend = panel.depth_begin != 0 ? p.c : p.addend;
  for (size_t r = 0; r < kRows; ++r) {
    const size_t at = (row + r) * p.cols + panel.first;
    for (size_t v = 0; v < kVectors; ++v) {
      const size_t done = HWY_MIN(v * lanes, panel.count);
      StoreSum(sum[r][v], addend == nullptr ? nullptr : addend + at + done,
               p.c + at + done, panel.count - done);
    }
  }
}

// Rows [row, row + count) of C, count <= kTileRows.
template <size_t kVectors, size_t kRows = kTileRows>
HWY_INLINE void MultiplyRows(const Product& p, const Panel& panel, size_t row,
                             size_t count) {
  if (count == kRows) {
    MultiplyTile<kRows, kVectors>(p, panel, row);
  } else if constexpr (kRows > 1) {
    MultiplyRows<kVectors, kRows - 1>(p, panel, row, count);
  }
}

size_t RowBlocks(const Product& p) {
  return (p.rows + kTileRows - 1) / kTileRows;
}

size_t PanelCount(const Product& p) {
  const size_t width = kPanelVectors * hn::Lanes(D());
  return (p.cols + width - 1) / width;
}

// Row blocks and panels, half-open ranges of both.
struct Region {
  size_t first_panel, last_panel;
  size_t first_block, last_block;
};

// The row blocks of the region in one panel, for `depth` of the sums' terms
// from depth_begin on.
void MultiplyPanel(const Product& p, const Region& region, size_t index,
                   size_t depth_begin, size_t depth, float* scratch) {
  const size_t lanes = hn::Lanes(D());
  Panel panel;
  panel.data = scratch;
  panel.first = index * kPanelVectors * lanes;
  panel.count = HWY_MIN(p.cols - panel.first, kPanelVectors * lanes);
  panel.vectors = panel.count <= lanes ? 1 : kPanelVectors;
  panel.depth_begin = depth_begin;
  panel.depth = depth;
  Pack(p, panel);
  for (size_t block = region.first_block; block < region.last_block; ++block) {
    const size_t row = block * kTileRows;
    const size_t count = HWY_MIN(p.rows - row, kTileRows);
    if (panel.vectors == 1) {
      MultiplyRows<1>(p, panel, row, count);
    } else {
      MultiplyRows<kPanelVectors>(p, panel, row, count);
    }
  }
}

// All terms of a region. Every element gets its terms in index order, whatever
// the order of panels and rows.
void MultiplyRegion(const Product& p, const Region& region, float* scratch) {
  const size_t panels = kBlockColumns / (kPanelVectors * hn::Lanes(D()));
  constexpr size_t kBlocks = kBlockRows / kTileRows;
  static_assert(kBlockRows % kTileRows == 0);
  // Parts of about kBlocks each: a small one would be packed for in vain.
  const size_t blocks = region.last_block - region.first_block;
  const size_t parts = HWY_MAX(size_t{1}, (blocks + kBlocks / 2) / kBlocks);
  for (size_t panel = region.first_panel; panel < region.last_panel;
       panel += panels) {
    const size_t last_panel = HWY_MIN(region.last_panel, panel + panels);
    for (size_t k = 0; k < p.depth; k += kPanelDepth) {
      const size_t depth = HWY_MIN(p.depth - k, kPanelDepth);
      for (size_t part = 0; part < parts; ++part) {
        const Region rows = {panel, last_panel,
                             region.first_block + blocks * part / parts,
                             region.first_block + blocks * (part + 1) / parts};
        for (size_t i = panel; i < last_panel; ++i) {
          MultiplyPanel(p, rows, i, k, depth, scratch);
        }
      }
    }
  }
}

}  // namespace

// Threads share the pairs (panel, row block), panels outermost: at most one
// panel in front and one at the end of a share is not whole.
void Multiply(const Product& p, const KernelContext& context) {
  const size_t blocks = RowBlocks(p);
  context.pool->ParallelFor(
      static_cast<int64_t>(PanelCount(p) * blocks),
      [&](int64_t begin, int64_t end, int thread) {
        const auto last = static_cast<size_t>(end);
        for (auto i = static_cast<size_t>(begin); i < last;) {
          const size_t panel = i / blocks;
          const size_t block = i % blocks;
          Region region = {panel, panel + 1, block, blocks};
          if (block == 0 && last - i >= blocks) {
            region.last_panel = last / blocks;
          } else {
            region.last_block = HWY_MIN(blocks, block + (last - i));
          }
          MultiplyRegion(p, region, context.PerThread<float>(thread));
          i += (region.last_panel - region.first_panel) *
               (region.last_block - region.first_block);
        }
      });
}

}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace thimble::kernels {
namespace {

using matmul::kMostLanes;
using matmul::kPanelDepth;
using matmul::kPanelVectors;
using matmul::Product;

Workspace PanelWorkspace(size_t depth, int64_t cols) {
  const size_t most = kPanelVectors * kMostLanes;
  const size_t width =
      static_cast<size_t>(cols) <= kMostLanes ? kMostLanes : most;
  return {.per_thread = std::min(depth, kPanelDepth) * width * sizeof(float)};
}

}  // namespace

Workspace LinearForwardWorkspace(const LinearShape& shape) {
  return PanelWorkspace(static_cast<size_t>(shape.in), shape.out);
}

void LinearForward(const LinearShape& shape, int64_t rows, const ConstTensor& x,
                   const ConstTensor& w, const LinearTarget& y,
                   const KernelContext& context) {
  const auto in = static_cast<size_t>(shape.in);
  const auto out = static_cast<size_t>(shape.out);
  const Product p = {.a = x.f32(),
                     .a_row = in,
                     .a_depth = 1,
                     .b = w.f32(),
                     .b_stride = in,
                     .b_transposed = true,
                     .c = y.to.f32(),
                     .addend = y.addend.f32(),
                     .rows = static_cast<size_t>(rows),
                     .cols = out,
                     .depth = in};
  THIMBLE_DISPATCH(Multiply).Get()(p, context);
}

Workspace LinearGradInputWorkspace(const LinearShape& shape) {
  return PanelWorkspace(static_cast<size_t>(shape.out), shape.in);
}

void LinearGradInput(const LinearShape& shape, int64_t rows,
                     const ConstTensor& grad_y, const ConstTensor& w,
                     const LinearTarget& grad_x, const KernelContext& context) {
  const auto in = static_cast<size_t>(shape.in);
  const auto out = static_cast<size_t>(shape.out);
  const Product p = {.a = grad_y.f32(),
                     .a_row = out,
                     .a_depth = 1,
                     .b = w.f32(),
                     .b_stride = in,
                     .b_transposed = false,
                     .c = grad_x.to.f32(),
                     .addend = grad_x.addend.f32(),
                     .rows = static_cast<size_t>(rows),
                     .cols = in,
                     .depth = out};
  THIMBLE_DISPATCH(Multiply).Get()(p, context);
}

Workspace LinearGradWeightWorkspace(const LinearShape& shape) {
  return PanelWorkspace(kPanelDepth, shape.in);
}

void LinearGradWeight(const LinearShape& shape, int64_t rows,
                      const ConstTensor& x, const ConstTensor& grad_y,
                      const LinearTarget& grad_w,
                      const KernelContext& context) {
  const auto in = static_cast<size_t>(shape.in);
  const auto out = static_cast<size_t>(shape.out);
  if (rows == 0) {  // an empty sum, which no panel would write
    float* to = grad_w.to.f32();
    const float* addend = grad_w.addend.f32();
    if (addend == nullptr) {
      std::fill_n(to, in * out, 0.0f);
    } else if (addend != to) {
      std::copy_n(addend, in * out, to);
    }
    return;
  }
  const Product p = {.a = grad_y.f32(),
                     .a_row = 1,
                     .a_depth = out,
                     .b = x.f32(),
                     .b_stride = in,
                     .b_transposed = false,
                     .c = grad_w.to.f32(),
                     .addend = grad_w.addend.f32(),
                     .rows = out,
                     .cols = in,
                     .depth = static_cast<size_t>(rows)};
  THIMBLE_DISPATCH(Multiply).Get()(p, context);
}

}  // namespace thimble::kernels
#endif  // HWY_ONCE
