// SPDX-License-Identifier: Apache-2.0
#include "kernels/rewire/rewrite_matrix.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "kernels/rewire/magnitude.h"
#include "kernels/rewire/selection.h"

namespace thimble::kernels {
namespace {

bool BitAt(const uint64_t* bits, int64_t i) {
  return (bits[i / 64] >> (i % 64) & 1u) != 0;
}

// The n <= 64 bits from bit i on.
uint64_t BitsFrom(const uint64_t* bits, int64_t i, int64_t n) {
  uint64_t word = bits[i / 64] >> (i % 64);
  if (i % 64 + n > 64) word |= bits[i / 64 + 1] << (64 - i % 64);
  return word & FirstBits(n);
}

// Makes bits i to i + n - 1 those of `word`, whose others are zero.
void SetBits(uint64_t* bits, int64_t i, int64_t n, uint64_t word) {
  const int64_t at = i % 64;
  uint64_t& first = bits[i / 64];
  first = (first & ~(FirstBits(n) << at)) | word << at;
  if (at + n <= 64) return;
  uint64_t& second = bits[i / 64 + 1];
  second = (second & ~FirstBits(at + n - 64)) | word >> (64 - at);
}

// Where the run of equal bits that begins at i ends, but not after `end`.
int64_t RunEnd(const uint64_t* bits, int64_t i, int64_t end) {
  const uint64_t same = BitAt(bits, i) ? 0 : ~uint64_t{0};
  while (i < end) {
    const uint64_t differ = ~(bits[i / 64] ^ same) >> (i % 64);
    if (differ != 0) return std::min(end, i + std::countr_zero(differ));
    i += 64 - i % 64;
  }
  return end;
}

// Sets the bits of positions that keep a block.
void ReadOldPattern(const RewiredPool& pool, size_t m,
                    const MatrixChange& change, const MatrixScratch& scratch) {
  std::memset(scratch.bits, 0,
              static_cast<size_t>((change.blocks + 63) / 64) * 8);
  const Pattern pattern = pool.layout.Of(pool.index, m);
  PatternReader reader(pattern);
  while (reader.row() < pattern.matrix.rows) {
    const int64_t n = reader.count();
    const int64_t position = reader.row() * pattern.matrix.columns;
    reader.Read(scratch.columns);
    for (int64_t i = 0; i < n; ++i) {
      const int64_t p = position + scratch.columns[i];
      scratch.bits[p / 64] |= uint64_t{1} << (p % 64);
    }
  }
}

// Which of the kept blocks of some positions are pruned, as bits.
template <typename M>
uint64_t PrunedOf(uint64_t kept, Pruning<M>& pruning) {
  uint64_t pruned = 0;
  for (; kept != 0; kept &= kept - 1) {
    if (pruning.Next()) pruned |= kept & -kept;
  }
  return pruned;
}

// Writes the new rows, and in place of the bits of positions those of the new
// kept blocks, in order: set where a block is new. A block's number is never
// larger than its position, so no bit is written before it was read.
template <typename M>
void WriteNewPattern(const RewiredPool& pool, size_t m,
                     const MatrixChange& change, const M& magnitudes,
                     PositionNumbers& numbers, const MatrixScratch& scratch) {
  const BlockMatrix& matrix = pool.layout.matrix(m);
  Pruning<M> pruning(magnitudes, change);
  Selection grow(numbers, change.free(), change.grown - change.regrown());
  Selection regrow(numbers, change.pruned, change.regrown());
  int64_t written = 0;
  for (int64_t r = 0; r < matrix.rows; ++r) {
    size_t n = 0;
    for (int64_t c = 0; c < matrix.columns; c += kSweep) {
      const int64_t position = r * matrix.columns + c;
      const int64_t width = std::min(kSweep, matrix.columns - c);
      const uint64_t old = BitsFrom(scratch.bits, position, width);
      const uint64_t pruned = PrunedOf(old, pruning);
      const uint64_t grown = grow.Take(position, ~old & FirstBits(width)) |
                             regrow.Take(position, pruned);
      const uint64_t row = (old & ~pruned) | grown;
      uint64_t is_new = 0;
      int in_sweep = 0;
      for (uint64_t left = row; left != 0; left &= left - 1) {
        const int i = std::countr_zero(left);
        scratch.columns[n++] = static_cast<uint16_t>(c + i);
        is_new |= (grown >> i & 1u) << in_sweep++;
      }
      SetBits(scratch.bits, written, in_sweep, is_new);
      written += in_sweep;
    }
    pool.layout.WriteRow(pool.index, m, r,
                         change.new_first + written - static_cast<int64_t>(n),
                         {scratch.columns, n});
  }
}

// A pool's bytes, by blocks.
class BlockBytes {
 public:
  BlockBytes(const Tensor& pool, int64_t block_values)
      : data_(static_cast<std::byte*>(pool.data())),
        bytes_(static_cast<int64_t>(BytesFor(pool.dtype(), block_values))) {}

  void Move(int64_t to, int64_t from, int64_t n) const {
    if (to == from || n == 0) return;
    std::memmove(data_ + to * bytes_, data_ + from * bytes_,
                 static_cast<size_t>(n * bytes_));
  }
  void Clear(int64_t from, int64_t n) const {
    std::memset(data_ + from * bytes_, 0, static_cast<size_t>(n * bytes_));
  }

 private:
  std::byte* data_;
  int64_t bytes_;
};

// Moves what survives to the beginning of the matrix's old place. `magnitudes`
// may be of the very blocks that are moved: they are read before.
template <typename M>
void GatherSurvivors(const BlockBytes& blocks, const MatrixChange& change,
                     const M& magnitudes) {
  Pruning pruning(magnitudes, change);
  const int64_t end = change.first + change.kept;
  int64_t to = change.first;
  int64_t run = change.first;
  for (int64_t b = change.first; b < end; ++b) {
    if (!pruning.Next()) continue;
    blocks.Move(to, run, b - run);
    to += b - run;
    run = b + 1;
  }
  blocks.Move(to, run, end - run);
}

// From there to the end of the new place, and then to their own, from the left:
// what is still to be moved lies to the right of what is written.
void SpreadSurvivors(const BlockBytes& blocks, const MatrixChange& change,
                     const uint64_t* is_new) {
  const int64_t n = change.new_kept();
  int64_t from = change.new_first + change.grown;
  blocks.Move(from, change.first, change.survivors());
  for (int64_t i = 0; i < n;) {
    const int64_t end = RunEnd(is_new, i, n);
    if (BitAt(is_new, i)) {
      blocks.Clear(change.new_first + i, end - i);
    } else {
      blocks.Move(change.new_first + i, from, end - i);
      from += end - i;
    }
    i = end;
  }
}

}  // namespace

void RewriteMatrix(const RewiredPool& pool, size_t m,
                   const MatrixChange& change, uint64_t seed, uint64_t step,
                   const MatrixScratch& scratch) {
  const int64_t block_values = pool.layout.block().values();
  PositionNumbers numbers(seed, step,
                          PatternStream(static_cast<uint32_t>(m)) + 2);
  WithMagnitudes(pool.weights, block_values, [&](const auto& magnitudes) {
    ReadOldPattern(pool, m, change, scratch);
    WriteNewPattern(pool, m, change, magnitudes, numbers, scratch);
    // Weights last: they say what survives.
    for (const Tensor& state : pool.states) {
      const BlockBytes blocks(state, block_values);
      GatherSurvivors(blocks, change, magnitudes);
      SpreadSurvivors(blocks, change, scratch.bits);
    }
    const BlockBytes blocks(pool.weights, block_values);
    GatherSurvivors(blocks, change, magnitudes);
    SpreadSurvivors(blocks, change, scratch.bits);
  });
}

}  // namespace thimble::kernels
