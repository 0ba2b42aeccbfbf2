// SPDX-License-Identifier: Apache-2.0
//
// Sparse weights: of a weight, only some elements are kept. Which ones says a
// pattern, and it changes while a network learns: elements move from one weight
// to another, while their number in all stays the same. So all sparse weights
// of a network lie in one pool, one after the other, and so do their gradients
// and each piece of their optimizer's state. One index beside them holds all
// patterns. This file says how it is laid out.
//
// A weight [O, I, taps…] is seen as a matrix of O rows and I * taps columns, as
// it would lie in memory. Its unit is a block of outputs by inputs at one tap,
// mostly 1 by 1. A matrix of blocks has O / outputs rows, and column
// (input / inputs) * taps + tap. Kept blocks lie in the order of rows, then of
// columns, the values of a block by outputs, then inputs.
//
// The index, in bytes:
//   u32 of each matrix: how many blocks it keeps
//   u16 of each row of each matrix: the same
//   bits, by a codec (IndexCodec)
//
// Example: the weight [2, 3] = {0 5 7; 0 0 2} keeps three blocks of one
// element: the counts are 3, then 2 and 1; packed, the bits are the columns 1,
// 2, 2 with two bits each; as a bitmap, they are 011 and 001, each row in a
// byte of its own. The pool holds 5, 7, 2.
//
// Layouts are immutable and safe from every thread; patterns and their readers
// are views of bytes that somebody else owns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "thimble/shape.h"
#include "thimble/status.h"

namespace thimble {

// What is pruned and grown as one.
struct WeightBlock {
  int64_t outputs = 1;
  int64_t inputs = 1;

  int64_t values() const { return outputs * inputs; }
  friend bool operator==(const WeightBlock&, const WeightBlock&) = default;
};

enum class IndexCodec : uint8_t {
  // The column of each kept block, in as many bits as the pool's widest matrix
  // needs; no gaps between rows or matrices.
  kPacked,
  // A bit for each block of a matrix, set where it is kept. A row begins with a
  // byte.
  kBitmap,
};

const char* IndexCodecName(IndexCodec codec);  // as ParseIndexCodec takes it
Result<IndexCodec> ParseIndexCodec(std::string_view name);

// A matrix of blocks.
struct BlockMatrix {
  int64_t rows = 0;
  int64_t columns = 0;

  int64_t blocks() const { return rows * columns; }
  // Of a bitmap's row.
  int64_t row_bytes() const { return (columns + 7) / 8; }
  friend bool operator==(const BlockMatrix&, const BlockMatrix&) = default;
};

// A weight of at least two dimensions, outputs and inputs first, in blocks. Not
// possible where they do not divide it, or a row has more than 65,535 of them.
Result<BlockMatrix> BlocksOf(const Shape& weight, const WeightBlock& block);

// Bits that a column of a matrix this wide takes.
int ColumnBits(int64_t columns);

// Which blocks of one matrix are kept: a view of an index.
struct Pattern {
  BlockMatrix matrix;
  WeightBlock block;
  IndexCodec codec = IndexCodec::kPacked;
  int column_bits = 0;               // packed
  int64_t kept = 0;                  // blocks
  int64_t first = 0;                 // of the pool's blocks: the first of these
  const uint16_t* counts = nullptr;  // per row
  // Of the whole pool where packed, else of this matrix.
  const uint8_t* bits = nullptr;

  int64_t values() const { return kept * block.values(); }
};

// Reads the rows of a pattern, one after the other.
class PatternReader {
 public:
  // Begins at `row`.
  explicit PatternReader(const Pattern& pattern, int64_t row = 0);

  int64_t row() const { return row_; }
  // Of the matrix's kept blocks: the first one of the row.
  int64_t first() const { return first_; }
  // Blocks that the row keeps. REQUIRES: there is a row left.
  int64_t count() const { return pattern_->counts[row_]; }
  // Writes their columns in ascending order, and goes to the next row.
  void Read(uint16_t* columns);

 private:
  const Pattern* pattern_;
  int64_t row_;
  int64_t first_ = 0;
};

// Where everything lies that an index holds, and the values beside it.
class PoolLayout {
 public:
  // REQUIRES: at least one matrix, each as BlocksOf says; 0 < kept.
  PoolLayout(std::vector<BlockMatrix> matrices, WeightBlock block, int64_t kept,
             IndexCodec codec);
  // With the codec whose index is smaller.
  static PoolLayout Smallest(std::vector<BlockMatrix> matrices,
                             WeightBlock block, int64_t kept);

  size_t size() const { return matrices_.size(); }
  const BlockMatrix& matrix(size_t m) const { return matrices_[m]; }
  const WeightBlock& block() const { return block_; }
  int64_t kept() const { return kept_; }  // blocks, of all matrices
  IndexCodec codec() const { return codec_; }
  int column_bits() const { return column_bits_; }

  // Bytes of the index; a reader of the packed form may load eight bytes from
  // the byte of any column on, and finds them within.
  size_t index_bytes() const { return index_bytes_; }

  // The pattern of matrix m, as an index of this layout has it now.
  Pattern Of(const std::byte* index, size_t m) const;
  // The same where it is known how many blocks the matrices before m keep.
  Pattern Of(const std::byte* index, size_t m, int64_t first) const;

  // Writes one row of matrix m: its count and its bits, nothing else. `entry`
  // is the place of its first block in the pool; columns are ascending.
  // REQUIRES: there is room for them from there on.
  void WriteRow(std::byte* index, size_t m, int64_t row, int64_t entry,
                std::span<const uint16_t> columns) const;

  // Writes an index, from scratch or again: begin with matrix 0, and give every
  // row of every matrix in order.
  class Writer {
   public:
    Writer(const PoolLayout& layout, std::byte* index);
    // Columns in ascending order. REQUIRES: all matrices together keep no more
    // blocks than the layout has room for.
    void Row(std::span<const uint16_t> columns);

   private:
    const PoolLayout& layout_;
    std::byte* index_;
    size_t matrix_ = 0;
    int64_t row_ = 0;
    int64_t written_ = 0;  // blocks
  };

  // Where parts of the index begin.
  size_t CountsOffset(size_t m) const { return counts_[m]; }
  size_t BitsOffset(size_t m) const { return bits_[m]; }

 private:
  std::vector<BlockMatrix> matrices_;
  WeightBlock block_;
  int64_t kept_;
  IndexCodec codec_;
  int column_bits_;
  std::vector<size_t> counts_, bits_;  // per matrix, offsets
  size_t index_bytes_ = 0;
};

// Whether bytes that came from outside are an index of this layout: counts that
// add up, columns that exist, in ascending order. Says what is wrong.
Status CheckIndex(const PoolLayout& layout, std::span<const std::byte> index);

}  // namespace thimble
