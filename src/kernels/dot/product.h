// SPDX-License-Identifier: Apache-2.0
//
// Matrix products of bf16 by dot products (dot_form.h): how C = A B is cut into
// blocks. Internal to matrix products.
//
// Terms are multiplied in pairs: a 32-bit word holds those of depth k (low
// half) and k + 1, with zeros where there is no k + 1. Lanes run over columns
// of C. A panel is 256 terms of at most 128 columns of B in the scratch, as
// strips of 32 columns; words of A are broadcast, from where they lie if they
// are words there. Sums of 256 terms each are made in registers and added up,
// to the addend first, in f32; C is rounded once, when its sum is complete.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/context.h"
#include "kernels/matmul/product.h"

namespace thimble::kernels::dot {

inline constexpr size_t kGroupRows = 16;  // of C, worked on together
inline constexpr size_t kLanes = 16;

// What a block of C may be, and where its sums lie in the scratch that is
// planned for staged products. Words of pairs take half of the room for panels:
// where rows of A must be copied, blocks have twice the columns, so that fewer
// blocks copy the same rows.
struct ProductLayout {
  explicit ProductLayout(const matmul::Product& p) {
    const matmul::StagedScratch planned(p.rows, p.cols, p.depth, p.c.dtype());
    columns = planned.columns;
    of_panels = planned.of_panels;
    const bool keeps = p.depth > matmul::kPanelDepth && planned.of_sums > 0;
    if (keeps) sums = of_panels;
    if (p.a_depth == 1 || p.cols < 2 * columns) return;
    const size_t terms = std::min(p.depth, matmul::kPanelDepth);
    if ((terms + 1) / 2 * 2 * columns > of_panels) return;
    const size_t most = planned.of_sums / (2 * columns);
    if (keeps && most < kGroupRows) return;
    columns *= 2;
    if (keeps) rows = most / kGroupRows * kGroupRows;
  }
  size_t rows = matmul::kStagedRows;
  size_t columns = 0;
  size_t of_panels = 0;
  size_t sums = 0;  // of a block in f32, behind the panels; 0: C keeps them
};

// Rows and columns of C.
struct ProductBlock {
  size_t first_row;
  size_t rows;
  size_t first_column;
  size_t columns;
};

// Whether the product is multiplied by MultiplyByDots: where dot products are
// on, A and B are bf16, and C is bf16 or f32.
bool IsDotProduct(const matmul::Product& product);

// Takes the scratch that is planned for staged products.
void MultiplyByDots(const matmul::Product& product,
                    const KernelContext& context);
// The same on one thread, in that scratch of it.
void MultiplyByDotsHere(const matmul::Product& product, float* scratch);

}  // namespace thimble::kernels::dot
