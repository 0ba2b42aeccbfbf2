// SPDX-License-Identifier: Apache-2.0
//
// Carries out a rewiring of one matrix: its part of the index, and of the pools
// of values beside it. Between its place before and its place afterwards there
// may be a distance; nobody else's bytes at either place are touched. One
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/rng.h"
#include "kernels/rewire/matrix_change.h"
#include "kernels/tensor.h"
#include "thimble/sparsity.h"

namespace thimble::kernels {

struct MatrixScratch {
  uint16_t* columns;  // as many as the matrix has
  uint64_t* bits;     // one for each position
};

// What a rewiring works on; all pools have the layout's kept blocks.
struct RewiredPool {
  const PoolLayout& layout;
  std::byte* index;
  const Tensor& weights;
  // Those that move with the weights.
  std::span<const Tensor> states;
};

// REQUIRES: the matrix's old place and its new one overlap no other matrix
// whose place there is still in use. Kept counts of the index's head are not
// changed: they are the caller's, when all matrices are done.
void RewriteMatrix(const RewiredPool& pool, size_t m,
                   const MatrixChange& change, uint64_t seed, uint64_t step,
                   const MatrixScratch& scratch);

}  // namespace thimble::kernels
