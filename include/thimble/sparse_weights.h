// SPDX-License-Identifier: Apache-2.0
//
// SparseWeights: which weights a plan stores sparse, and how (sparsity.h).
// Plain values.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "thimble/sparsity.h"
#include "thimble/status.h"

namespace thimble {

struct SparseWeights {
  // The share of blocks that each sparse weight keeps when training begins, in
  // (0, 1]; of all of them together it stays the same. 1: all weights are
  // dense.
  double nonzero = 1.0;
  WeightBlock block;
  // Unset: the one that takes fewer bytes.
  std::optional<IndexCodec> index;
  // Names of weights, in which * stands for any text. Empty: those that the
  // model names (Model::sparse_weights), or all values with at least two
  // dimensions but the network's first and last one.
  std::vector<std::string> weights;

  bool is_dense() const { return nonzero == 1.0; }
  // An error that says what to change.
  Status Check() const;

  friend bool operator==(const SparseWeights&, const SparseWeights&) = default;
};

// How many of a weight's blocks are kept when training begins: of the papers'
// form, rounded down but for what floating point leaves under a whole number.
int64_t KeptOf(double nonzero, const BlockMatrix& matrix);

}  // namespace thimble
