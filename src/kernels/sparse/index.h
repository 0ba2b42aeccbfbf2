// SPDX-License-Identifier: Apache-2.0
//
// Parts of rows of a pattern (thimble/sparsity.h), wherever they begin: ranges
// of columns, for the gradient of the input, and of kept blocks, for that of
// the weights. Internal to the kernels; safe from every thread.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "thimble/sparsity.h"

namespace thimble::kernels::sparse {

// A row of a pattern. `first`: of the matrix's kept blocks, the row's first.
struct PatternRow {
  const Pattern& pattern;
  int64_t row;
  int64_t first;

  int64_t count() const { return pattern.counts[row]; }

  // Packed: the column of kept block i.
  int64_t PackedColumn(int64_t i) const {
    const auto bit = static_cast<uint64_t>(pattern.first + first + i) *
                     static_cast<uint64_t>(pattern.column_bits);
    uint64_t word = 0;
    std::memcpy(&word, pattern.bits + bit / 8, sizeof(word));
    const uint64_t mask = (uint64_t{1} << pattern.column_bits) - 1;
    return static_cast<int64_t>(word >> (bit % 8) & mask);
  }

  // Bitmap: bits [64 i, 64 i + 64) of the row, zeros past its end.
  uint64_t Word(int64_t i) const {
    const int64_t bytes = pattern.matrix.row_bytes();
    uint64_t word = 0;
    std::memcpy(&word, pattern.bits + row * bytes + 8 * i,
                static_cast<size_t>(std::min<int64_t>(8, bytes - 8 * i)));
    return word;
  }

  // Kept blocks in columns before `column`.
  int64_t CountBelow(int64_t column) const {
    if (column <= 0) return 0;
    if (column >= pattern.matrix.columns) return count();
    if (pattern.codec == IndexCodec::kBitmap) {
      int64_t below = 0;
      int64_t i = 0;
      for (; 64 * i + 64 <= column; ++i) below += std::popcount(Word(i));
      if (column % 64 == 0) return below;
      return below +
             std::popcount(Word(i) & ((uint64_t{1} << column % 64) - 1));
    }
    int64_t low = 0, high = count();
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (PackedColumn(middle) < column) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }

  // Writes those of the columns [begin, end) that are kept, `skip` of them are
  // before. Returns how many they are, or -1 where they are more than `most`.
  int64_t ReadColumns(int64_t skip, int64_t begin, int64_t end, int64_t most,
                      uint16_t* columns) const {
    if (end >= pattern.matrix.columns) {
      const int64_t n = count() - skip;
      if (n > most) return -1;
      if (pattern.codec == IndexCodec::kPacked) {
        for (int64_t i = 0; i < n; ++i) {
          columns[i] = static_cast<uint16_t>(PackedColumn(skip + i));
        }
        return n;
      }
    }
    return pattern.codec == IndexCodec::kPacked
               ? ReadPackedUntil(skip, end, most, columns)
               : ReadBits(begin, end, most, columns);
  }

  // The columns of kept blocks [skip, skip + n) of the row.
  void ReadBlocks(int64_t skip, int64_t n, uint16_t* columns) const {
    if (pattern.codec == IndexCodec::kPacked) {
      for (int64_t i = 0; i < n; ++i) {
        columns[i] = static_cast<uint16_t>(PackedColumn(skip + i));
      }
      return;
    }
    int64_t word = 0;
    for (; skip > 0; ++word) {
      const int64_t here = std::popcount(Word(word));
      if (here > skip) break;
      skip -= here;
    }
    for (int64_t i = 0; i < n; ++word) {
      for (uint64_t bits = Word(word); bits != 0 && i < n; bits &= bits - 1) {
        if (skip-- > 0) continue;
        columns[i++] =
            static_cast<uint16_t>(64 * word + std::countr_zero(bits));
      }
    }
  }

 private:
  int64_t ReadPackedUntil(int64_t skip, int64_t end, int64_t most,
                          uint16_t* columns) const {
    const int64_t left = count() - skip;
    for (int64_t i = 0; i < left; ++i) {
      const int64_t column = PackedColumn(skip + i);
      if (column >= end) return i;
      if (i == most) return -1;
      columns[i] = static_cast<uint16_t>(column);
    }
    return left;
  }
  int64_t ReadBits(int64_t begin, int64_t end, int64_t most,
                   uint16_t* columns) const {
    int64_t n = 0;
    for (int64_t i = begin / 64; 64 * i < end; ++i) {
      uint64_t bits = Word(i);
      if (64 * i < begin) bits &= ~uint64_t{0} << (begin - 64 * i);
      if (64 * i + 64 > end) bits &= ~uint64_t{0} >> (64 * i + 64 - end);
      for (; bits != 0; bits &= bits - 1) {
        if (n == most) return -1;
        columns[n++] = static_cast<uint16_t>(64 * i + std::countr_zero(bits));
      }
    }
    return n;
  }
};

}  // namespace thimble::kernels::sparse
