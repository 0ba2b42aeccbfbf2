// SPDX-License-Identifier: Apache-2.0
//
// Rows of sparse weights (sparse.h), and pairs of their records. Included once
// per build, by way of foreach_build.h; hence no `#pragma once`.
//
// Two records, of which the values are weights, become a pair when their middle
// halves change places: two offsets, two weights.
#if defined(THIMBLE_KERNELS_DOT_SPARSE_ROWS_INL_H_) == \
    defined(THIMBLE_DOT_TOGGLE)
#ifdef THIMBLE_KERNELS_DOT_SPARSE_ROWS_INL_H_
#undef THIMBLE_KERNELS_DOT_SPARSE_ROWS_INL_H_
#else
#define THIMBLE_KERNELS_DOT_SPARSE_ROWS_INL_H_
#endif

#include "kernels/dot/sparse_records-inl.h"

THIMBLE_DOT_BEGIN
namespace {

using dot::SparseScratch;
using dot::SparseWeights;

// Reads rows of weights; blocks become single entries.
class RowReader {
 public:
  RowReader(const SparseWeights& weights, int64_t taps,
            const SparseScratch& scratch)
      : weights_(weights),
        reader_(weights.pattern),
        taps_(taps),
        columns_(scratch.columns),
        values_(scratch.values) {}

  const ColumnReader& reader() const { return reader_; }

  // Of output `output`, whose row's entries begin at `first`: from entry `at`
  // on, which is the first one of channel `begin`, those below channel `end`.
  // `read` is how many entries of the index they are.
  RowEntries Read(int64_t output, int64_t first, int64_t at, int64_t begin,
                  int64_t end, int64_t& read) const {
    const WeightBlock& block = weights_.pattern.block;
    const int64_t inputs = block.inputs;
    if (block.values() == 1) {  // without a division
      read =
          reader_.Read(output, first, at, begin * taps_, end * taps_, columns_);
      return {columns_, weights_.values + first + at, read};
    }
    read = reader_.Read(output / block.outputs, first, at,
                        begin / inputs * taps_, end / inputs * taps_, columns_);
    const uint16_t* values = weights_.values + (first + at) * block.values() +
                             output % block.outputs * inputs;
    // From the last one on, so that columns are still there.
    for (int64_t i = read - 1; i >= 0; --i) {
      const int64_t column =
          columns_[i] / taps_ * inputs * taps_ + columns_[i] % taps_;
      for (int64_t j = inputs - 1; j >= 0; --j) {
        columns_[i * inputs + j] = static_cast<uint16_t>(column + j * taps_);
        values_[i * inputs + j] = values[i * block.values() + j];
      }
    }
    return {columns_, values_, read * inputs};
  }

 private:
  const SparseWeights& weights_;
  ColumnReader reader_;
  int64_t taps_;
  uint16_t* columns_;
  uint16_t* values_;
};

THIMBLE_DOT_INLINE Words SwapMiddles(Words v) {
#if THIMBLE_DOT_IS_AVX2
  return {_mm256_shufflehi_epi16(_mm256_shufflelo_epi16(v.low, 0xD8), 0xD8),
          _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(v.high, 0xD8), 0xD8)};
#else
  return _mm512_shufflehi_epi16(
      _mm512_shufflelo_epi16(v, static_cast<_MM_PERM_ENUM>(0xD8)),
      static_cast<_MM_PERM_ENUM>(0xD8));
#endif
}

}  // namespace
THIMBLE_DOT_END

#endif  // per-build include guard
