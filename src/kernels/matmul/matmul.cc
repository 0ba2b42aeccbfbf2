// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/matmul/matmul.cc"
#include "kernels/matmul/matmul.h"

#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "kernels/dot/product.h"
#include "kernels/matmul/product.h"
#include "kernels/matmul/staged-inl.h"
#include "kernels/matmul/tile-inl.h"
#include "kernels/simd-inl.h"
#include "kernels/sparse/sparse_linear.h"
#include "kernels/target.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

using matmul::kBlockColumns;
using matmul::kBlockRows;

size_t RowBlocks(const Product& p) {
  return (p.rows + kTileRows - 1) / kTileRows;
}

bool IsF32(const Product& p) {
  return p.a.dtype() == DType::kF32 && p.b.dtype() == DType::kF32 &&
         p.c.dtype() == DType::kF32;
}

size_t PanelCount(const Product& p) {
  const size_t width = kPanelVectors * hn::Lanes(D());
  return (p.cols + width - 1) / width;
}

// The row blocks of the region in one panel, for `depth` of the sums' terms
// from depth_begin on. The first terms are added to the addend, others to what
// those before them gave.
void MultiplyPanel(const Product& p, const Region& region, size_t index,
                   size_t depth_begin, size_t depth, float* scratch) {
  const Panel panel = PanelOf(p, index, depth_begin, depth, scratch);
  Pack(p, &panel, 1);
  const float* a = p.a.f32() + depth_begin * p.a_depth;
  float* c = p.c.f32() + panel.first;
  const float* addend = depth_begin != 0 ? p.c.f32() : p.addend.f32();
  for (size_t block = region.first_block; block < region.last_block; ++block) {
    const size_t row = block * kTileRows;
    const size_t at = row * p.cols;
    const Tile tile = {
        .a = a + row * p.a_row,
        .a_row = p.a_row,
        .a_depth = p.a_depth,
        .c = c + at,
        .addend = addend == nullptr ? nullptr : addend + panel.first + at,
        .c_row = p.cols};
    MultiplyRows(tile, panel, HWY_MIN(p.rows - row, kTileRows));
  }
}

// All terms of a region of a product that is f32 throughout. Every element gets
// its terms in index order, whatever the order of panels and rows.
void MultiplyF32(const Product& p, const Region& region, float* scratch) {
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
  const auto multiply = IsF32(p) ? MultiplyF32 : MultiplyStaged;
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
          multiply(p, region, context.PerThread<float>(thread));
          i += (region.last_panel - region.first_panel) *
               (region.last_block - region.first_block);
        }
      });
}

// In pieces: threads share the regions of C, of which the sums lie in front of
// the panels.
void MultiplyPieces(const Product& p, const PieceSink& sink,
                    const KernelContext& context) {
  const GradRegions regions(static_cast<int64_t>(p.rows),
                            static_cast<int64_t>(p.cols), 1);
  context.pool->ParallelFor(
      regions.count(), [&](int64_t begin, int64_t end, int thread) {
        auto* sums = context.PerThread<float>(thread);
        float* scratch = sums + matmul::PieceFloats(regions);
        for (int64_t i = begin; i < end; ++i) {
          const GradRegion r = regions.At(i);
          Product part = p;
          part.a = p.a.From(r.first_output);
          part.a_elements =
              p.depth * p.a_depth - static_cast<size_t>(r.first_output);
          part.b = p.b.From(r.first_column);
          part.c = F32(sums);
          part.rows = static_cast<size_t>(r.outputs);
          part.cols = static_cast<size_t>(r.columns);
          const Region all = {0, PanelCount(part), 0, RowBlocks(part)};
          if (p.depth == 0) {
            std::memset(sums, 0, part.rows * part.cols * sizeof(float));
          } else if (dot::IsDotProduct(part)) {
            dot::MultiplyByDotsHere(part, scratch);
          } else if (IsF32(part)) {
            MultiplyF32(part, all, scratch);
          } else {
            MultiplyStaged(part, all, scratch);
          }
          regions.Hand(r, sums, sink);
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
using matmul::kStagedRows;
using matmul::Product;

bool IsF32(const LinearStorage& storage) {
  return storage.a == DType::kF32 && storage.b == DType::kF32 &&
         storage.to == DType::kF32;
}

// Of a product of the shape [rows, depth] [depth, cols], with numbers that are
// large enough where a run decides.
Workspace ProductWorkspace(size_t rows, size_t cols, size_t depth,
                           const LinearStorage& storage) {
  if (!IsF32(storage)) {
    const matmul::StagedScratch staged(rows, cols, depth, storage.to);
    return {.per_thread = (staged.of_panels + staged.of_sums) * sizeof(float)};
  }
  const size_t most = kPanelVectors * kMostLanes;
  const size_t width = cols <= kMostLanes ? kMostLanes : most;
  return {.per_thread = std::min(depth, kPanelDepth) * width * sizeof(float)};
}

Workspace SparseWorkspace(int64_t floats) {
  return {.per_thread = static_cast<size_t>(floats) * sizeof(float)};
}

void Run(const Product& p, const KernelContext& context) {
  TH_CHECK(!p.addend.is_there() || p.addend.dtype() == p.c.dtype());
  if (dot::IsDotProduct(p)) {
    dot::MultiplyByDots(p, context);
    return;
  }
  THIMBLE_DISPATCH(Multiply).Get()(p, context);
}

}  // namespace

Workspace LinearForwardWorkspace(const LinearShape& shape,
                                 const LinearStorage& storage) {
  if (shape.blocks) return SparseWorkspace(sparse::LinearFloats(shape, true));
  return ProductWorkspace(kStagedRows, static_cast<size_t>(shape.out),
                          static_cast<size_t>(shape.in), storage);
}

void LinearForward(const LinearShape& shape, int64_t rows, const ConstTensor& x,
                   const ConstTensor& w, const LinearTarget& y,
                   const KernelContext& context) {
  TH_CHECK(w.is_sparse() == shape.blocks.has_value());
  if (w.is_sparse()) {
    sparse::RunLinear(shape, true, rows, x, w, y, context);
    return;
  }
  const auto in = static_cast<size_t>(shape.in);
  const auto out = static_cast<size_t>(shape.out);
  Run({.a = x,
       .a_row = in,
       .a_depth = 1,
       .b = w,
       .b_stride = in,
       .b_transposed = true,
       .c = y.to,
       .addend = y.addend,
       .rows = static_cast<size_t>(rows),
       .cols = out,
       .depth = in},
      context);
}

Workspace LinearGradInputWorkspace(const LinearShape& shape,
                                   const LinearStorage& storage) {
  if (shape.blocks) return SparseWorkspace(sparse::LinearFloats(shape, false));
  return ProductWorkspace(kStagedRows, static_cast<size_t>(shape.in),
                          static_cast<size_t>(shape.out), storage);
}

void LinearGradInput(const LinearShape& shape, int64_t rows,
                     const ConstTensor& grad_y, const ConstTensor& w,
                     const LinearTarget& grad_x, const KernelContext& context) {
  TH_CHECK(w.is_sparse() == shape.blocks.has_value());
  if (w.is_sparse()) {
    sparse::RunLinear(shape, false, rows, grad_y, w, grad_x, context);
    return;
  }
  const auto in = static_cast<size_t>(shape.in);
  const auto out = static_cast<size_t>(shape.out);
  Run({.a = grad_y,
       .a_row = out,
       .a_depth = 1,
       .b = w,
       .b_stride = in,
       .b_transposed = false,
       .c = grad_x.to,
       .addend = grad_x.addend,
       .rows = static_cast<size_t>(rows),
       .cols = in,
       .depth = out},
      context);
}

Workspace LinearGradWeightWorkspace(const LinearShape& shape,
                                    const LinearStorage& storage) {
  if (shape.blocks) return SparseWorkspace(sparse::LinearWeightFloats(shape));
  return ProductWorkspace(static_cast<size_t>(shape.out),
                          static_cast<size_t>(shape.in), kPanelDepth + 1,
                          storage);
}

Workspace LinearGradPiecesWorkspace(const LinearShape& shape,
                                    const LinearStorage& storage) {
  if (shape.blocks) return SparseWorkspace(sparse::LinearWeightFloats(shape));
  const GradRegions regions(shape.out, shape.in, 1);
  Workspace workspace =
      ProductWorkspace(static_cast<size_t>(regions.outputs()),
                       static_cast<size_t>(regions.columns()), kPanelDepth + 1,
                       {storage.a, storage.b, DType::kF32});
  workspace.per_thread +=
      static_cast<size_t>(matmul::PieceFloats(regions)) * sizeof(float);
  return workspace;
}

void LinearGradWeight(const LinearShape& shape, int64_t rows,
                      const ConstTensor& x, const ConstTensor& grad_y,
                      const LinearTarget& grad_w,
                      const KernelContext& context) {
  TH_CHECK((grad_w.pattern != nullptr) == shape.blocks.has_value());
  if (grad_w.pattern != nullptr) {
    sparse::RunLinearWeightGrad(shape, rows, x, grad_y, grad_w, context);
    return;
  }
  const auto in = static_cast<size_t>(shape.in);
  const auto out = static_cast<size_t>(shape.out);
  if (rows == 0 &&
      grad_w.pieces == nullptr) {  // an empty sum, which no panel would write
    const ConstTensor& addend = grad_w.addend;
    TH_CHECK(!addend.is_there() || addend.dtype() == grad_w.to.dtype());
    const size_t bytes = BytesFor(grad_w.to.dtype(), shape.in * shape.out);
    if (!addend.is_there()) {
      std::memset(grad_w.to.data(), 0, bytes);  // zeros of any type
    } else if (addend.data() != grad_w.to.data()) {
      std::memcpy(grad_w.to.data(), addend.data(), bytes);
    }
    return;
  }
  const Product product = {.a = grad_y,
                           .a_row = 1,
                           .a_depth = out,
                           .b = x,
                           .b_stride = in,
                           .b_transposed = false,
                           .c = grad_w.to,
                           .addend = grad_w.addend,
                           .rows = out,
                           .cols = in,
                           .depth = static_cast<size_t>(rows)};
  if (grad_w.pieces == nullptr) {
    Run(product, context);
  } else {
    THIMBLE_DISPATCH(MultiplyPieces).Get()(product, *grad_w.pieces, context);
  }
}

}  // namespace thimble::kernels
#endif  // HWY_ONCE
