// SPDX-License-Identifier: Apache-2.0
//
// Rewiring: the sparse weights of a network (thimble/sparsity.h) lose their
// smallest blocks, and as many new ones grow elsewhere, so that a network
// learns its own pattern while it keeps its size. Two methods:
//
// - dynamic sparse reparameterization (Mostafa and Wang, "Parameter Efficient
//   Training of Deep Convolutional Neural Networks by Dynamic Sparse
//   Reparameterization", ICML 2019): one threshold for all matrices, growth in
//   proportion to what survives in each;
// - sparse evolutionary training (Mocanu et al., Nature Communications 2018):
//   of each matrix a fraction, and it gets back as many.
//
// The pool is changed where it lies, in one thread, in time linear in its size
// and in the matrices' blocks. Which blocks grow is a function of seed, step,
// matrix and position. Safe from several threads on different pools.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/tensor.h"
#include "thimble/sparsity.h"

namespace thimble::kernels {

// How many of a matrix's blocks are kept when training begins.
int64_t InitialKept(double density, int64_t blocks);

// Writes the first index: of matrix m, kept[m] blocks, each set of them equally
// likely. REQUIRES: they add up to the layout's. Not for the training step: it
// allocates a row of columns.
void WriteInitialIndex(const PoolLayout& layout, std::span<const int64_t> kept,
                       uint64_t seed, std::byte* index);

enum class RewireMethod : uint8_t {
  // Prunes blocks below the threshold; of those of a matrix that keeps any, not
  // the first one if it were to lose all. Growth is shared by the numbers of
  // survivors; what a full matrix cannot take goes to others.
  kDsr,
  // Prunes the smallest floor(fraction * kept) blocks of each matrix, the first
  // ones of equals; but not the last of its blocks, and no more than its free
  // positions can take back.
  kSet,
};

enum class StateReset : uint8_t {
  kWhole,      // all of a state is zero afterwards
  kNewBlocks,  // that of new blocks is; that of others moves with them
};

struct RewireOptions {
  RewireMethod method = RewireMethod::kDsr;
  // kDsr: a block is pruned if the mean magnitude of its values, in f32, is
  // smaller than this. REQUIRES: not negative.
  float threshold = 0;
  // kDsr: how many blocks a rewiring should prune.
  int64_t target = 0;
  // kSet. In [0, 1].
  double fraction = 0;
  StateReset reset = StateReset::kWhole;
  uint64_t seed = 0;
  uint64_t step = 0;  // of training: no two rewirings have the same
};

struct RewireResult {
  int64_t pruned = 0;     // blocks, of all matrices; as many grew
  int64_t survivors = 0;  // blocks
  // Of `pruned`: what grew where it had been, because all else was full.
  int64_t regrown = 0;
  // For the next rewiring: half or twice as large where this one pruned over
  // 1.1 or under 0.9 times the target; within what f32 holds.
  float threshold = 0;
};

// Bytes, a multiple of 8: a bit for each block of the largest matrix, the
// columns of a row, and some numbers for each matrix.
size_t RewireScratchBytes(const PoolLayout& layout);

// Prunes and grows. New blocks are zeros and were not among the pruned ones
// (but for RewireResult::regrown); survivors keep their bits; how many blocks
// are kept in all stays the same. `weights` and `states` are values of the
// whole pool: `weights` in a float type, a state so too or in blocks of 8 bits,
// which can be reset as a whole only. Gradients that were made before belong to
// the old pattern. REQUIRES: `index` is one of the layout; `scratch` begins at
// a multiple of 8.
RewireResult Rewire(const PoolLayout& layout, std::byte* index,
                    const Tensor& weights, std::span<const Tensor> states,
                    const RewireOptions& options, std::byte* scratch);

}  // namespace thimble::kernels
