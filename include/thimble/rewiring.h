// SPDX-License-Identifier: Apache-2.0
//
// Rewiring: the sparse weights of a network (sparsity.h) lose their smallest
// blocks, and as many new ones grow elsewhere, so that a network learns its own
// pattern while it keeps its size. Two methods:
//
// - dynamic sparse reparameterization (Mostafa and Wang, "Parameter Efficient
//   Training of Deep Convolutional Neural Networks by Dynamic Sparse
//   Reparameterization", ICML 2019): one threshold for all matrices, growth in
//   proportion to what survives in each;
// - sparse evolutionary training (Mocanu et al., Nature Communications 2018):
//   of each matrix a fraction, and it gets back as many.
//
// Plain values.
#pragma once

#include <cstdint>
#include <optional>

namespace thimble {

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

// How a run rewires its sparse weights.
struct RewiringOptions {
  // None: the pattern stays as it was drawn.
  std::optional<RewireMethod> method = RewireMethod::kDsr;
  // Steps from one rewiring to the next, to the end of the run. 0: after 100
  // steps at first, after more of them later, and not in the last twentieth, as
  // the low-memory training report has it for the density (train/rewiring.h).
  int64_t every = 0;
  // Of what is kept, the share that a rewiring should prune: of all weights
  // together (kDsr), or of each (kSet). 0: what the report prunes at the
  // density; 0.3 with kSet.
  double prune = 0;
  StateReset reset = StateReset::kWhole;
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

}  // namespace thimble
