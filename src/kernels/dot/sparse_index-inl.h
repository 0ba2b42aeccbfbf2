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

// Places of the bits that are set in a byte, the lowest one first.
struct BitPlaces {
  constexpr BitPlaces() {
    for (int byte = 0; byte < 256; ++byte) {
      int count = 0;
      for (uint8_t i = 0; i < 8; ++i) {
        if ((byte >> i & 1) != 0) of[byte][count++] = i;
      }
    }
  }
  uint8_t of[256][8] = {};
};
constexpr BitPlaces kBitPlaces;

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
    const int64_t bytes = pattern_.matrix.row_bytes();
    const uint8_t* from = pattern_.bits + row * bytes;
    int64_t count = 0;
    for (int64_t bit = 0; bit < end; bit += 56) {
      const int64_t left = end - bit < 56 ? end - bit : 56;
      count += __builtin_popcountll(BitsAt(from, bytes, bit) &
                                    ((uint64_t{1} << left) - 1));
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

  // 57 bits or more from bit `bit` of a row of `bytes` on; those past the row
  // are zeros.
  static uint64_t BitsAt(const uint8_t* row, int64_t bytes, int64_t bit) {
    uint64_t word = 0;
    const int64_t left = bytes - bit / 8;
    if (left >= 8) {
      std::memcpy(&word, row + bit / 8, sizeof word);
    } else if (bytes >= 8) {
      std::memcpy(&word, row + bytes - 8, sizeof word);
      word >>= 8 * (8 - left);
    } else {
      std::memcpy(&word, row + bit / 8, static_cast<size_t>(left));
    }
    return word >> (bit % 8);
  }

  int64_t ReadBitmap(int64_t row, int64_t begin, int64_t end,
                     uint16_t* to) const {
    constexpr int64_t kAtOnce = 56;
    const int64_t bytes = pattern_.matrix.row_bytes();
    const uint8_t* from = pattern_.bits + row * bytes;
    const uint16_t* const first = to;
    for (int64_t bit = begin; bit < end; bit += kAtOnce) {
      const int64_t left = end - bit < kAtOnce ? end - bit : kAtOnce;
      uint64_t bits = BitsAt(from, bytes, bit) & ((uint64_t{1} << left) - 1);
      // By a table: compressing vectors takes longer.
      for (int64_t i = 0; i < left; i += 8, bits >>= 8) {
        const auto byte = static_cast<uint8_t>(bits);
        const __m128i columns = _mm_add_epi16(
            _mm_cvtepu8_epi16(_mm_loadl_epi64(
                reinterpret_cast<const __m128i*>(kBitPlaces.of[byte]))),
            _mm_set1_epi16(static_cast<int16_t>(bit + i)));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to), columns);
        to += __builtin_popcount(byte);
      }
    }
    return to - first;
  }

  const Pattern& pattern_;
  Order orders_[8];
};

}  // namespace
THIMBLE_DOT_END

#endif  // per-build include guard
