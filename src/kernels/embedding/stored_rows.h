// SPDX-License-Identifier: Apache-2.0
//
// Where the values of an embedding's weight lie, and in which order the rows of
// a text give gradients to them. Pure functions of shape, pattern and tokens;
// internal to the kernels.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "kernels/embedding/embedding.h"
#include "kernels/sparse/index.h"
#include "thimble/sparsity.h"

namespace thimble::kernels::embedding {

// A unit is the tokens whose values lie together: one, or those of a row of
// blocks. Its values are a stretch of those of the weight.
class StoredRows {
 public:
  // `starts`: StartsOf(shape) of them, which are written.
  StoredRows(const EmbeddingShape& shape, const Pattern* pattern,
             int64_t* starts)
      : shape_(shape),
        pattern_(pattern),
        starts_(starts),
        unit_(UnitOf(shape)),
        block_(BlockOf(shape).values()) {
    if (pattern_ == nullptr) return;
    int64_t before = 0;
    for (int64_t u = 0; u < units(); ++u) {
      if (u % kGroup == 0) starts[u / kGroup] = before;
      before += pattern_->counts[u];
    }
  }

  static int64_t StartsOf(const EmbeddingShape& shape) {
    if (!shape.blocks.has_value()) return 0;
    return (shape.vocabulary / UnitOf(shape) + kGroup - 1) / kGroup;
  }
  // Tokens of a unit.
  static int64_t UnitOf(const EmbeddingShape& shape) {
    return BlockOf(shape).outputs;
  }

  const EmbeddingShape& shape() const { return shape_; }
  bool is_sparse() const { return pattern_ != nullptr; }
  const WeightBlock& block() const { return pattern_->block; }
  int64_t unit() const { return unit_; }
  int64_t units() const { return shape_.vocabulary / unit_; }
  int64_t values() const {
    return pattern_ != nullptr ? pattern_->values()
                               : shape_.vocabulary * shape_.features;
  }

  // Of all values, the first one of unit u; all of them for units().
  int64_t First(int64_t u) const {
    if (pattern_ == nullptr) return u * shape_.features;
    return FirstBlock(u) * block_;
  }
  int64_t Count(int64_t u) const {
    return pattern_ == nullptr ? shape_.features : pattern_->counts[u] * block_;
  }
  // The unit that a value is of.
  int64_t Holds(int64_t value) const {
    if (pattern_ == nullptr) return value / shape_.features;
    const int64_t block = value / block_;
    const int64_t groups = StartsOf(shape_);
    int64_t u =
        (std::upper_bound(starts_, starts_ + groups, block) - starts_ - 1) *
        kGroup;
    int64_t left = block - starts_[u / kGroup];
    while (left >= pattern_->counts[u]) left -= pattern_->counts[u++];
    return u;
  }

  // Its kept blocks. REQUIRES: is_sparse().
  sparse::PatternRow Row(int64_t u) const {
    return {*pattern_, u, FirstBlock(u)};
  }

 private:
  static constexpr int64_t kGroup = 64;  // units that share a start

  static WeightBlock BlockOf(const EmbeddingShape& shape) {
    return shape.blocks.value_or(WeightBlock{});
  }
  int64_t FirstBlock(int64_t u) const {
    if (u == units()) return pattern_->kept;
    int64_t first = starts_[u / kGroup];
    for (int64_t i = u / kGroup * kGroup; i < u; ++i) {
      first += pattern_->counts[i];
    }
    return first;
  }

  const EmbeddingShape& shape_;
  const Pattern* pattern_;
  const int64_t* starts_;
  int64_t unit_, block_;
};

// The rows of a text in the order of their tokens, those of one token in row
// order.
struct TokenOrder {
  const int32_t* tokens = nullptr;
  const int32_t* rows = nullptr;
  int64_t count = 0;

  int64_t TokenAt(int64_t i) const { return tokens[rows[i]]; }
  // The first place of a token that is at least `token`.
  int64_t From(int64_t token) const {
    const auto below = [this](int32_t row, int64_t t) {
      return tokens[row] < t;
    };
    return std::lower_bound(rows, rows + count, token, below) - rows;
  }
};

// By digits, the last one first. `scratch`: twice `rows`.
inline TokenOrder OrderTokens(int64_t vocabulary, int64_t rows,
                              const int32_t* tokens, int32_t* scratch) {
  constexpr int kBits = 8;
  constexpr int32_t kDigits = 1 << kBits;
  int32_t* from = scratch;
  int32_t* to = scratch + rows;
  for (int64_t r = 0; r < rows; ++r) from[r] = static_cast<int32_t>(r);
  for (int shift = 0; ((vocabulary - 1) >> shift) > 0; shift += kBits) {
    const auto digit = [=](int32_t row) {
      return (tokens[row] >> shift) & (kDigits - 1);
    };
    int32_t places[kDigits + 1] = {};
    for (int64_t r = 0; r < rows; ++r) {
      ++places[digit(static_cast<int32_t>(r)) + 1];
    }
    for (int32_t i = 0; i < kDigits; ++i) places[i + 1] += places[i];
    for (int64_t r = 0; r < rows; ++r) to[places[digit(from[r])]++] = from[r];
    std::swap(from, to);
  }
  return {tokens, from, rows};
}

}  // namespace thimble::kernels::embedding
