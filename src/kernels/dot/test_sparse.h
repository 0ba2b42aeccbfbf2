// SPDX-License-Identifier: Apache-2.0
//
// Test only: sparse weights in the middle of a pool, and shapes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/conv/test_fused.h"
#include "kernels/dot/sparse_reference.h"
#include "kernels/stored_tensor.h"
#include "thimble/sparsity.h"

namespace thimble::kernels::testing {

struct SparseCase {
  FusedCase fused;
  double density;  // of blocks
  IndexCodec codec = IndexCodec::kPacked;
  WeightBlock block = {1, 1};
};

// The shape with its blocks.
inline FusedCase InBlocks(const SparseCase& c) {
  FusedCase fused = c.fused;
  fused.shape.blocks = c.block;
  return fused;
}

// The second of three matrices of a pool.
class SparseWeightsOf {
 public:
  explicit SparseWeightsOf(const SparseCase& c, DType dtype = DType::kBF16)
      : block_(c.block),
        taps_(c.fused.shape.kernel_h * c.fused.shape.kernel_w) {
    const Conv2dShape& s = c.fused.shape;
    inputs_ = s.in_channels;
    const BlockMatrix matrix = {s.out_channels / block_.outputs,
                                s.in_channels / block_.inputs * taps_};
    const BlockMatrix other = {3, 5};
    std::vector<std::vector<uint16_t>> rows = {{0, 3}, {}, {1}};
    for (int64_t r = 0; r < matrix.rows; ++r) {
      rows.emplace_back();
      for (int64_t i = 0; i < matrix.columns; ++i) {
        const float random =
            TestValue(77, static_cast<uint64_t>(r * matrix.columns + i));
        if ((random + 1.0f) * 0.5f >= static_cast<float>(c.density)) continue;
        rows.back().push_back(static_cast<uint16_t>(i));
      }
    }
    rows.insert(rows.end(), {{4}, {}, {}});
    size_t kept = 0;
    for (const auto& row : rows) kept += row.size();
    const PoolLayout layout({other, matrix, other}, block_,
                            static_cast<int64_t>(kept), c.codec);
    index_.resize(layout.index_bytes());
    PoolLayout::Writer writer(layout, index_.data());
    for (const auto& row : rows) writer.Row(row);
    pattern_ = layout.Of(index_.data(), 1);
    values_ = std::make_unique<StoredTensor>(
        dtype, static_cast<size_t>(pattern_.values()), 2);
    rows_.assign(rows.begin() + 3, rows.begin() + 3 + matrix.rows);
  }

  const Pattern& pattern() const { return pattern_; }
  ConstTensor tensor() {
    return {values_->data(), values_->dtype(), nullptr, &pattern_};
  }

  // f(index in the dense weight) for all that is kept, in its order.
  template <typename F>
  void ForKept(const F& f) const {
    for (size_t r = 0; r < rows_.size(); ++r) {
      for (const uint16_t column : rows_[r]) {
        for (int64_t i = 0; i < block_.values(); ++i) {
          const int64_t o =
              static_cast<int64_t>(r) * block_.outputs + i / block_.inputs;
          const int64_t c = column / taps_ * block_.inputs + i % block_.inputs;
          f(static_cast<size_t>((o * inputs_ + c) * taps_ + column % taps_));
        }
      }
    }
  }
  dot::KeptWeights Dense(size_t size) {
    dot::KeptWeights dense{std::vector<float>(size), std::vector<bool>(size)};
    size_t i = 0;
    ForKept([&](size_t at) {
      dense.values[at] = static_cast<float>(values_->Get(i++));
      dense.kept[at] = true;
    });
    return dense;
  }

 private:
  WeightBlock block_;
  int64_t taps_, inputs_;
  std::vector<std::byte> index_;
  Pattern pattern_;
  std::unique_ptr<StoredTensor> values_;
  std::vector<std::vector<uint16_t>> rows_;
};

inline const SparseCase kSparseCases[] = {
    {{{5, 8, 8, 6, 3, 3, 1, 1}, 1}, 0.3},
    {{{5, 8, 8, 6, 3, 3, 1, 1}, 2}, 0.3, IndexCodec::kBitmap},
    {{{7, 8, 8, 5, 3, 3, 1, 1}, 3}, 1.0},
    {{{4, 8, 8, 3, 3, 3, 1, 1}, 5}, 0.0},
    {{{4, 8, 8, 3, 3, 3, 1, 1}, 4}, 0.02, IndexCodec::kBitmap},
    {{{9, 16, 16, 8, 3, 3, 1, 1}, 3}, 0.3},
    {{{8, 16, 16, 9, 3, 3, 1, 1}, 2}, 0.1, IndexCodec::kBitmap},
    {{{6, 12, 16, 4, 3, 3, 1, 1}, 2}, 0.5},
    {{{3, 32, 32, 5, 3, 3, 1, 1}, 2}, 0.3},
    {{{5, 8, 32, 6, 3, 3, 1, 1}, 1}, 1.0, IndexCodec::kBitmap},
    {{{9, 8, 8, 12, 1, 1, 1, 0}, 3}, 0.4},
    {{{16, 16, 16, 9, 1, 1, 1, 0}, 1}, 0.2, IndexCodec::kBitmap},
    {{{6, 16, 16, 8, 3, 3, 2, 1}, 3}, 0.3},
    {{{5, 32, 32, 7, 3, 3, 2, 1}, 2}, 0.3, IndexCodec::kBitmap},
    {{{9, 16, 16, 8, 1, 1, 2, 0}, 2}, 0.3},
    {{{10, 32, 32, 6, 1, 1, 2, 0}, 1}, 0.5},
    {{{3, 8, 64, 4, 3, 3, 2, 1}, 1}, 0.5},
    {{{4, 8, 8, 6, 3, 3, 1, 1}, 3}, 0.3, IndexCodec::kPacked, {2, 2}},
    {{{6, 16, 16, 4, 3, 3, 2, 1}, 2}, 0.3, IndexCodec::kBitmap, {1, 2}},
    {{{3, 16, 16, 4, 1, 1, 1, 0}, 2}, 0.5, IndexCodec::kPacked, {4, 1}},
};

// Chunks of channels, blocks of outputs, more than the records have room for.
inline const SparseCase kLargeSparseCases[] = {
    {{{70, 8, 8, 66, 3, 3, 1, 1}, 10}, 0.3},
    {{{130, 8, 8, 20, 3, 3, 1, 1}, 3}, 0.3, IndexCodec::kBitmap},
    {{{20, 8, 8, 130, 3, 3, 1, 1}, 3}, 1.0},
    {{{66, 16, 16, 34, 3, 3, 1, 1}, 2}, 0.7},
    {{{34, 32, 32, 18, 3, 3, 1, 1}, 1}, 0.2},
    {{{66, 16, 16, 40, 3, 3, 2, 1}, 2}, 0.3},
    {{{20, 16, 16, 130, 3, 3, 2, 1}, 2}, 0.3, IndexCodec::kBitmap},
    {{{20, 16, 16, 264, 3, 3, 2, 1}, 1}, 0.3},
    {{{130, 8, 8, 70, 1, 1, 1, 0}, 18}, 0.5},
    {{{130, 8, 8, 34, 3, 3, 1, 1}, 2}, 0.4, IndexCodec::kPacked, {2, 2}},
};

}  // namespace thimble::kernels::testing
