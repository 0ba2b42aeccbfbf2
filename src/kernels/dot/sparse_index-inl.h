// SPDX-License-Identifier: Apache-2.0
//
// Columns of an index (thimble/sparsity.h), fast: eight packed ones at a time,
// or those of sixteen bits of a bitmap. Included once per build, by way of
// foreach_build.h; hence no `#pragma once`.
#if defined(THIMBLE_KERNELS_DOT_SPARSE_INDEX_INL_H_) == \
    defined(THIMBLE_DOT_TOGGLE)
#ifdef THIMBLE_KERNELS_DOT_SPARSE_INDEX_INL_H_
#undef THIMBLE_KERNELS_DOT_SPARSE_INDEX_INL_H_
#else
#define THIMBLE_KERNELS_DOT_SPARSE_INDEX_INL_H_
#endif

#include "kernels/dot/lanes-inl.h"
#include "thimble/sparsity.h"

THIMBLE_DOT_BEGIN
namespace {

// Reads columns of one pattern. What is written may go on for up to
// kColumnSlack columns past what was asked for.
class ColumnReader {
 public:
  static constexpr int64_t kColumnSlack = 16;

  explicit ColumnReader(const Pattern& pattern) : pattern_(pattern) {
    if (pattern.codec != IndexCodec::kPacked) return;
    const int width = pattern.column_bits;
    for (int phase = 0; phase < 8; ++phase) {
      for (int i = 0; i < 8; ++i) {
        const int bit =
            (i < 4 ? phase : (phase + 4 * width) % 8) + i % 4 * width;
        for (int b = 0; b < 4; ++b) {
          orders_[phase].bytes[4 * i + b] = static_cast<uint8_t>(bit / 8 + b);
        }
        orders_[phase].shifts[i] = bit % 8;
      }
    }
  }

  // Columns of row `row`, whose entries begin at `first` of the matrix's: from
  // its entry `at`, whose column is at least `begin`, those below `end`.
  // Returns how many.
  int64_t Read(int64_t row, int64_t first, int64_t at, int64_t begin,
               int64_t end, uint16_t* to) const {
    const int64_t count = pattern_.counts[row] - at;
    if (pattern_.codec == IndexCodec::kPacked) {
      return ReadPacked(first + at, count, end, to);
    }
    return ReadBitmap(row, begin, end, to);
  }

  // How many entries of the row are below column `end`.
  int64_t CountBelow(int64_t row, int64_t first, int64_t end) const {
    if (pattern_.codec == IndexCodec::kPacked) {
      int64_t low = 0, high = pattern_.counts[row];
      while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (PackedColumn(first + middle) < end) {
          low = middle + 1;
        } else {
          high = middle;
        }
      }
      return low;
    }
    int64_t count = 0;
    for (int64_t bit = 0; bit < end; bit += 32) {
      const uint32_t bits = BitsAt(row, bit);
      const int64_t left = end - bit;
      count +=
          __builtin_popcount(left >= 32 ? bits : bits & ((1u << left) - 1));
    }
    return count;
  }

 private:
  // Where the bytes of eight columns are, four after the other, and by how much
  // they are shifted; by the first bit.
  struct Order {
    uint8_t bytes[32];
    int32_t shifts[8];
  };
  static constexpr int kMostVectorBits = 14;  // four columns in eight bytes

  int64_t PackedColumn(int64_t entry) const {
    const int64_t bit = (pattern_.first + entry) * pattern_.column_bits;
    uint64_t word = 0;
    std::memcpy(&word, pattern_.bits + bit / 8, sizeof word);
    const uint64_t mask = (uint64_t{1} << pattern_.column_bits) - 1;
    return static_cast<int64_t>(word >> (bit % 8) & mask);
  }

  // Up to `count` columns from an entry on, until one is not below `end`.
  int64_t ReadPacked(int64_t entry, int64_t count, int64_t end,
                     uint16_t* to) const {
    const int width = pattern_.column_bits;
    int64_t i = 0;
    if (width <= kMostVectorBits && count > 0) {
      // Columns that follow in the matrix exist, and may be read.
      const int64_t most =
          pattern_.kept - entry - 7 < count ? pattern_.kept - entry - 7 : count;
      const int64_t bit = (pattern_.first + entry) * width;
      const Order& order = orders_[bit % 8];
      const __m256i bytes =
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(order.bytes));
      const __m256i shifts =
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(order.shifts));
      const __m256i mask = _mm256_set1_epi32((1 << width) - 1);
      const uint8_t* low = pattern_.bits + bit / 8;
      const uint8_t* high = pattern_.bits + (bit + 4 * width) / 8;
      for (; i < most; i += 8, low += width, high += width) {
        const __m256i raw = _mm256_inserti128_si256(
            _mm256_castsi128_si256(
                _mm_loadl_epi64(reinterpret_cast<const __m128i*>(low))),
            _mm_loadl_epi64(reinterpret_cast<const __m128i*>(high)), 1);
        const __m256i v = _mm256_and_si256(
            _mm256_srlv_epi32(_mm256_shuffle_epi8(raw, bytes), shifts), mask);
        const __m256i halves =
            _mm256_permute4x64_epi64(_mm256_packus_epi32(v, v), 0xD8);
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i),
                         _mm256_castsi256_si128(halves));
        if (to[i + 7] >= end) break;
      }
      if (i < most) i += 8;
    }
    for (; i < count; ++i) {
      to[i] = static_cast<uint16_t>(PackedColumn(entry + i));
      if (to[i] >= end) break;
    }
    // Up to here the last eight may be too many, or those of the next row.
    int64_t there = i < count ? i : count;
    while (there > 0 && to[there - 1] >= end) --there;
    return there;
  }

  // Sixteen to thirty-two bits; those past the row are zeros.
  uint32_t BitsAt(int64_t row, int64_t bit) const {
    const int64_t bytes = pattern_.matrix.row_bytes();
    const uint8_t* from = pattern_.bits + row * bytes;
    uint64_t word = 0;
    const int64_t left = bytes - bit / 8;
    if (left >= 8) {
      std::memcpy(&word, from + bit / 8, sizeof word);
    } else {
      std::memcpy(&word, from + bit / 8, static_cast<size_t>(left));
    }
    return static_cast<uint32_t>(word >> (bit % 8));
  }

  int64_t ReadBitmap(int64_t row, int64_t begin, int64_t end,
                     uint16_t* to) const {
    int64_t count = 0;
    for (int64_t bit = begin; bit < end; bit += 16) {
      const int64_t left = end - bit;
      uint32_t bits = BitsAt(row, bit) & 0xFFFFu;
      if (left < 16) bits &= (1u << left) - 1;
#if THIMBLE_DOT_IS_AVX2
      for (; bits != 0; bits &= bits - 1) {
        to[count++] = static_cast<uint16_t>(bit + __builtin_ctz(bits));
      }
#else
      const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10,
                                              11, 12, 13, 14, 15);
      const __m512i columns =
          _mm512_add_epi32(lanes, _mm512_set1_epi32(static_cast<int>(bit)));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + count),
                          _mm512_cvtepi32_epi16(_mm512_maskz_compress_epi32(
                              static_cast<__mmask16>(bits), columns)));
      count += __builtin_popcount(bits);
#endif
    }
    return count;
  }

  const Pattern& pattern_;
  Order orders_[8];
};

}  // namespace
THIMBLE_DOT_END

#endif  // per-build include guard
