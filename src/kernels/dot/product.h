// SPDX-License-Identifier: Apache-2.0
//
// Matrix products of bf16 by dot products (dot_form.h): how C = A B is cut into
// blocks. Internal to matrix products.
//
// Terms are multiplied in pairs: a 32-bit word holds those of depth k (low
// half) and k + 1, with zeros where there is no k + 1. Lanes run over columns
// of C. A panel is 256 terms of at most 64 columns of B as [pair][column] in
// the scratch; words of A are broadcast, from where they lie if they are words
// there. Sums of 256 terms each are made in registers and added up, to the
// addend first, in f32; C is rounded once, when its sum is complete.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/context.h"
#include "kernels/matmul/product.h"

namespace thimble::kernels::dot {

inline constexpr size_t kGroupRows = 16;  // of C, worked on together
inline constexpr size_t kLanes = 16;

// Rows and columns of C. At most matmul::kStagedRows rows, and StagedScratch's
// columns.
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
