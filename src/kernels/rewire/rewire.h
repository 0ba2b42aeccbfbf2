// SPDX-License-Identifier: Apache-2.0
//
// Rewires a pool of sparse weights (thimble/rewiring.h), and writes its first
// index.
//
// The pool is changed where it lies, in one thread, in time linear in its size
// and in the matrices' blocks. Which blocks grow is a function of seed, step,
// matrix and position. Safe from several threads on different pools.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/tensor.h"
#include "thimble/rewiring.h"
#include "thimble/sparsity.h"

namespace thimble::kernels {

// Writes the first index: of matrix m, kept[m] blocks, each set of them equally
// likely. REQUIRES: they add up to the layout's. Not for the training step: it
// allocates a row of columns.
void WriteInitialIndex(const PoolLayout& layout, std::span<const int64_t> kept,
                       uint64_t seed, std::byte* index);

// Bytes, a multiple of 8: a bit for each block of the largest matrix, the
// columns of a row, and some numbers for each matrix.
size_t RewireScratchBytes(const PoolLayout& layout);

// Prunes and grows. New blocks are zeros and were not among the pruned ones
// (but for RewireResult::regrown); survivors keep their bits; how many blocks
// are kept in all stays the same. `weights` and `states` are values of the
// whole pool: `weights` in a float type, a state so too or in blocks of 8 bits,
// which can be reset as a whole only, and has room for another such block of
// each matrix, since each begins one. Gradients that were made before belong to
// the old pattern. REQUIRES: `index` is one of the layout; `scratch` begins at
// a multiple of 8.
RewireResult Rewire(const PoolLayout& layout, std::byte* index,
                    const Tensor& weights, std::span<const Tensor> states,
                    const RewireOptions& options, std::byte* scratch);

}  // namespace thimble::kernels
