// SPDX-License-Identifier: Apache-2.0
//
// The one product that the linear map and its two gradients are: C = A B, with
// A read through two strides and B either as it lies or transposed; how it is
// cut into blocks, and the scratch that they take. Internal to the family.
#pragma once

#include <algorithm>
#include <cstddef>

#include "kernels/grad_sink/grad_sink.h"
#include "kernels/tensor.h"

namespace thimble::kernels::matmul {

struct Product {
  ConstTensor a;  // A[m, k] = a[m * a_row + k * a_depth]
  size_t a_row = 0;
  size_t a_depth = 0;
  // Elements behind `a` that may be read, where A is a part of a matrix; 0: as
  // many as A has.
  size_t a_elements = 0;
  ConstTensor b;        // B[k, n] = b[k * b_stride + n], or
  size_t b_stride = 0;  // b[n * b_stride + k] where transposed
  bool b_transposed = false;
  Tensor c;  // C[m, n] = c[m * cols + n]
  // Like c, and may be c: what the sums are added to. None: zeros.
  ConstTensor addend;
  size_t rows = 0;   // M
  size_t cols = 0;   // N
  size_t depth = 0;  // K
};

// B is packed in panels of kPanelVectors vectors and at most kPanelDepth rows,
// as f32. Where all is stored as f32, one panel is all the scratch that a
// thread needs: 32 KiB with 16 lanes.
inline constexpr size_t kPanelVectors = 2;
inline constexpr size_t kPanelDepth = 256;
inline constexpr size_t kMostLanes = 16;

// All f32: a block of C is kBlockColumns wide. Its panels of one depth are
// packed again for each kBlockRows rows, from lines of B that the last-level
// cache holds, so that these rows of A stay in the second-level cache (240 KiB)
// for all of them. Whole register tiles of any target.
inline constexpr size_t kBlockRows = 240;
inline constexpr size_t kBlockColumns = 1024;

// Staged, where a tensor has 16 bits: a block of C is at most kStagedRows high
// and StagedColumns wide. All of its panels of one depth lie in the scratch.
// Rows of A are made f32 on the stack, kGroupRows at a time (24 KiB), once for
// all of these panels. A block that needs several depths is summed up in the
// scratch, as f32; otherwise one group's rows are, before they are rounded.
inline constexpr size_t kStagedRows = 256;
inline constexpr size_t kMostStagedColumns = 64;
inline constexpr size_t kGroupRows = 24;  // whole register tiles of any target

// Narrow products take half: their time is short, their scratch is not.
constexpr size_t StagedColumns(size_t cols) {
  return cols < 2 * kMostStagedColumns ? kMostStagedColumns / 2
                                       : kMostStagedColumns;
}

// Floats of the scratch of one thread. `rows` may be more than a run's.
struct StagedScratch {
  StagedScratch(size_t rows, size_t cols, size_t depth, DType to)
      : columns(std::min(StagedColumns(cols),
                         (cols + kMostLanes - 1) / kMostLanes * kMostLanes)),
        of_panels(std::min(depth, kPanelDepth) * columns) {
    if (to == DType::kF32) return;
    of_sums = columns *
              std::min(rows, depth > kPanelDepth ? kStagedRows : kGroupRows);
  }
  size_t columns;      // room for vectors of any target
  size_t of_panels;    // first
  size_t of_sums = 0;  // behind them: rows of `columns`
};

// Floats of the sums of a region of a gradient in pieces, whole cache lines.
inline int64_t PieceFloats(const GradRegions& regions) {
  constexpr auto kLine = static_cast<int64_t>(kMostLanes);
  return (regions.Floats() + kLine - 1) / kLine * kLine;
}

}  // namespace thimble::kernels::matmul
