// SPDX-License-Identifier: Apache-2.0
//
// How many queries and keys attention takes at a time, and where its scratch
// lies. Pure functions.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/attention/attention.h"

namespace thimble::kernels {

// Floats that the probabilities of a block of queries take, if a few queries
// do not take more.
inline constexpr int64_t kAttentionFloats = 16384;
inline constexpr int64_t kAttentionGradFloats = 8192;
inline constexpr int64_t kFewestQueries = 4;
// Where a sentence is more than one block of queries, the gradients of keys
// and values are made for a group of dropout's keys at a time, from tiles of
// so many queries.
inline constexpr auto kKeyBlock = static_cast<int64_t>(kDropoutGroup);
inline constexpr int64_t kQueryTile = 16;

// The distance of two queries' probabilities.
constexpr int64_t AttentionRow(int64_t keys) { return (keys + 15) / 16 * 16; }

constexpr int64_t QueriesOfBlock(int64_t floats, int64_t queries,
                                 int64_t keys) {
  if (keys == 0) return queries;
  return std::min(queries,
                  std::max(kFewestQueries, floats / AttentionRow(keys)));
}
constexpr int64_t BlockFloats(int64_t floats, int64_t keys) {
  return std::max(floats, kFewestQueries * AttentionRow(keys));
}

// What is found of a query once, and needed for each block of keys.
struct QueryStatistics {
  float largest, inverse;  // RowSoftmax
  float mean;              // Σ p · gradient of p
};

// What AttentionGrad reads and writes.
struct AttentionGradTensors {
  const ConstTensor &q, &k, &v, &grad_y;
  const AttentionGradients& grads;
};

// Floats of AttentionGrad's scratch, in this order.
struct AttentionGradScratch {
  AttentionGradScratch(const AttentionShape& shape, int64_t queries,
                       int64_t keys)
      : block(BlockFloats(kAttentionGradFloats, keys)),
        blocks(std::max(2 * block, 2 * kQueryTile * kKeyBlock +
                                       2 * kKeyBlock * shape.width())),
        line(AttentionRow(keys)),
        statistics(3 * queries) {}
  int64_t total() const { return blocks + line + statistics; }

  int64_t block;   // probabilities, or their gradients, of a block of queries
  int64_t blocks;  // both; or both of a tile, and sums for a block of keys
  int64_t line;    // one query's probabilities before dropout
  int64_t statistics;
};

}  // namespace thimble::kernels
