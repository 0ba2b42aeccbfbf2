// SPDX-License-Identifier: Apache-2.0
//
// Test only: sparse weights of a convolution, with the dense weights, zeros
// among them, that they stand for.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/conv/test_fused.h"
#include "kernels/stored_tensor.h"
#include "thimble/sparsity.h"

namespace thimble::kernels::testing {

// Which blocks are kept, and where their values are in a dense weight [outputs,
// inputs, taps].
class SparsePattern {
 public:
  // About every fifth row keeps nothing, unless all is kept.
  SparsePattern(int64_t outputs, int64_t inputs, int64_t taps,
                const WeightBlock& block, double density, IndexCodec codec,
                uint32_t seed)
      : layout_(LayoutOf(outputs, inputs, taps, block, density, codec, seed)),
        index_(layout_.index_bytes()) {
    PoolLayout::Writer writer(layout_, index_.data());
    for (int64_t r = 0; r < kOther.rows; ++r) writer.Row(kOtherColumns);
    for (size_t r = 0; r < rows_.size(); ++r) {
      writer.Row(rows_[r]);
      for (const uint16_t column : rows_[r]) {
        const int64_t input = column / taps, tap = column % taps;
        for (int64_t i = 0; i < block.values(); ++i) {
          const int64_t o =
              static_cast<int64_t>(r) * block.outputs + i / block.inputs;
          const int64_t c = input * block.inputs + i % block.inputs;
          places_.push_back(static_cast<size_t>((o * inputs + c) * taps + tap));
        }
      }
    }
    pattern_ = layout_.Of(index_.data(), 1);
  }

  const Pattern& pattern() const { return pattern_; }
  // Of each value, its place in the dense weight.
  const std::vector<size_t>& places() const { return places_; }

 private:
  // Another member of the pool, before this one.
  static constexpr BlockMatrix kOther = {3, 7};
  const std::vector<uint16_t> kOtherColumns = {1, 2, 6};

  PoolLayout LayoutOf(int64_t outputs, int64_t inputs, int64_t taps,
                      const WeightBlock& block, double density,
                      IndexCodec codec, uint32_t seed) {
    const BlockMatrix matrix = {outputs / block.outputs,
                                inputs / block.inputs * taps};
    std::mt19937 random(seed);
    std::bernoulli_distribution keeps(density), skips(density < 1 ? 0.2 : 0);
    int64_t kept = kOther.rows * static_cast<int64_t>(kOtherColumns.size());
    for (int64_t r = 0; r < matrix.rows; ++r) {
      auto& row = rows_.emplace_back();
      const bool empty = skips(random);
      for (int64_t c = 0; c < matrix.columns; ++c) {
        if (keeps(random) && !empty) row.push_back(static_cast<uint16_t>(c));
      }
      kept += static_cast<int64_t>(row.size());
    }
    return {{kOther, matrix}, block, kept, codec};
  }

  std::vector<std::vector<uint16_t>> rows_;
  PoolLayout layout_;
  std::vector<std::byte> index_;
  std::vector<size_t> places_;
  Pattern pattern_;
};

inline SparsePattern PatternOf(const Conv2dShape& s, double density,
                               IndexCodec codec, uint32_t seed = 1) {
  return {s.out_channels,
          s.in_channels,
          s.kernel_h * s.kernel_w,
          *s.blocks,
          density,
          codec,
          seed};
}

// Random values of what a pattern keeps.
class SparseWeight {
 public:
  SparseWeight(const SparsePattern& pattern, DType dtype, size_t dense_size,
               uint64_t seed)
      : pattern_(pattern),
        values_(dtype, pattern.places().size(), seed),
        dense_(dense_size) {
    for (size_t i = 0; i < values_.size(); ++i) {
      dense_[pattern.places()[i]] = values_.Get(i);
    }
  }
  ConstTensor tensor() {
    return {values_.data(), values_.dtype(), nullptr, &pattern_.pattern()};
  }
  const std::vector<double>& Wide() const { return dense_; }

 private:
  const SparsePattern& pattern_;
  StoredTensor values_;
  std::vector<double> dense_;
};

// Ways through the kernels and, with each, both codecs and all densities.
inline FusedCase WithBlocks(Conv2dShape shape, int64_t images,
                            WeightBlock block) {
  shape.blocks = block;
  return {shape, images};
}
inline std::vector<FusedCase> SparseCases() {
  constexpr WeightBlock kOne = {1, 1}, kFour = {2, 2}, kOdd = {3, 4};
  constexpr WeightBlock kTall = {4, 2}, kWide = {2, 4};
  return {
      WithBlocks({5, 8, 8, 6, 3, 3, 1, 1}, 3, kOne),
      WithBlocks({6, 8, 8, 20, 3, 3, 1, 1}, 5, kFour),
      WithBlocks({70, 8, 8, 34, 3, 3, 1, 1}, 17, kOne),
      WithBlocks({64, 8, 8, 38, 3, 3, 1, 1}, 2, kFour),
      WithBlocks({3, 16, 16, 10, 3, 3, 1, 1}, 5, kOne),
      WithBlocks({40, 16, 16, 16, 3, 3, 1, 1}, 2, kFour),
      WithBlocks({3, 32, 32, 5, 3, 3, 1, 1}, 2, kOne),
      WithBlocks({18, 32, 32, 4, 3, 3, 1, 1}, 1, kFour),
      WithBlocks({4, 16, 16, 9, 3, 3, 2, 1}, 3, kOne),
      WithBlocks({36, 16, 16, 40, 3, 3, 2, 1}, 2, kFour),
      WithBlocks({6, 32, 32, 8, 3, 3, 2, 1}, 2, kOne),
      WithBlocks({4, 64, 64, 6, 3, 3, 2, 1}, 1, kFour),
      WithBlocks({9, 8, 8, 12, 1, 1, 1, 0}, 3, kOne),
      WithBlocks({10, 16, 16, 8, 1, 1, 2, 0}, 6, kFour),
      WithBlocks({3, 7, 9, 5, 3, 3, 1, 1}, 2, kOne),
      WithBlocks({8, 9, 7, 9, 5, 5, 2, 2}, 2, kOdd),
      WithBlocks({4, 11, 6, 6, 3, 1, 3, 1}, 2, kOdd),
      WithBlocks({2, 7, 8, 3, 1, 1, 2, 2}, 2, kOne),
      WithBlocks({18, 16, 16, 12, 3, 3, 1, 1}, 2, kTall),
      WithBlocks({40, 8, 8, 6, 3, 3, 1, 1}, 3, kWide),
      WithBlocks({8, 32, 32, 8, 3, 3, 2, 1}, 1, kWide),
  };
}
inline constexpr double kDensities[] = {0.3, 0.0, 1.0, 0.02};

}  // namespace thimble::kernels::testing
