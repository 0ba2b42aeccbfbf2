// SPDX-License-Identifier: Apache-2.0
#include "thimble/sparsity.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "thimble/sparse_weights.h"

namespace thimble {
namespace {

constexpr size_t kBitsAlignment = 8;

// A reader loads eight bytes from the byte of a column on.
constexpr size_t kLoad = 8;

uint64_t LoadWord(const uint8_t* from) {
  uint64_t word = 0;
  std::memcpy(&word, from, kLoad);
  return word;
}

uint64_t PackedColumn(const uint8_t* bits, int width, int64_t entry) {
  const auto bit = static_cast<uint64_t>(entry) * static_cast<uint64_t>(width);
  const uint64_t mask = (uint64_t{1} << width) - 1;
  return LoadWord(bits + bit / 8) >> (bit % 8) & mask;
}

// Writes columns from `entry` on. Bits around them stay as they are.
void PackColumns(uint8_t* bits, int width, int64_t entry,
                 std::span<const uint16_t> columns) {
  const auto bit = static_cast<uint64_t>(entry) * static_cast<uint64_t>(width);
  bits += bit / 8;
  int held = static_cast<int>(bit % 8);
  uint64_t word = *bits & ((1u << held) - 1);
  for (const uint64_t column : columns) {
    word |= column << held;
    held += width;
    if (held < 32) continue;
    std::memcpy(bits, &word, 4);
    bits += 4;
    word >>= 32;
    held -= 32;
  }
  for (; held >= 8; held -= 8, word >>= 8) *bits++ = static_cast<uint8_t>(word);
  if (held > 0) {
    *bits = static_cast<uint8_t>((*bits >> held << held) | word);
  }
}

size_t RoundUp(size_t n, size_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

}  // namespace

const char* IndexCodecName(IndexCodec codec) {
  return codec == IndexCodec::kPacked ? "packed" : "bitmap";
}

Result<IndexCodec> ParseIndexCodec(std::string_view name) {
  for (const IndexCodec codec : {IndexCodec::kPacked, IndexCodec::kBitmap}) {
    if (name == IndexCodecName(codec)) return codec;
  }
  return Status::Usage(
      fmt::format("unknown index '{}'; it is packed or bitmap", name));
}

Result<BlockMatrix> BlocksOf(const Shape& weight, const WeightBlock& block) {
  TH_CHECK(weight.rank() >= 2);
  if (weight[0] % block.outputs != 0 || weight[1] % block.inputs != 0) {
    return Status::Usage(fmt::format(
        "blocks of {} outputs by {} inputs do not divide a weight {}",
        block.outputs, block.inputs, weight.ToString()));
  }
  const BlockMatrix matrix = {
      weight[0] / block.outputs,
      weight[1] / block.inputs * weight.elements_from(2)};
  if (matrix.columns > UINT16_MAX) {
    return Status::Usage(
        fmt::format("a weight {} has {} columns; sparse ones have at most {}",
                    weight.ToString(), matrix.columns, UINT16_MAX));
  }
  return matrix;
}

int ColumnBits(int64_t columns) {
  const auto last = static_cast<uint64_t>(columns - 1);
  return static_cast<int>(
      std::max<int64_t>(1, static_cast<int64_t>(std::bit_width(last))));
}

Status SparseWeights::Check() const {
  // Also refuses what is no number.
  if (!(nonzero > 0.0 && nonzero <= 1.0)) {
    return Status::Usage(fmt::format(
        "the share of nonzero weights must be above 0 and at most 1, got {}",
        nonzero));
  }
  if (block.outputs < 1 || block.inputs < 1 || block.values() > 64) {
    return Status::Usage(fmt::format(
        "blocks of {} outputs by {} inputs are not possible; they have 1 to "
        "64 weights",
        block.outputs, block.inputs));
  }
  if (is_dense() && *this != SparseWeights()) {
    return Status::Usage(
        "blocks, index and names of sparse weights have no effect where all "
        "weights are kept; choose a share below 1 "
        "(SparseWeights::nonzero)");
  }
  return Status::Ok();
}

int64_t KeptOf(double nonzero, const BlockMatrix& matrix) {
  const auto kept = static_cast<int64_t>(
      nonzero * static_cast<double>(matrix.blocks()) + 0.1);
  return std::clamp<int64_t>(kept, 1, matrix.blocks());
}

PatternReader::PatternReader(const Pattern& pattern, int64_t row)
    : pattern_(&pattern), row_(row) {
  for (int64_t r = 0; r < row; ++r) first_ += pattern.counts[r];
}

void PatternReader::Read(uint16_t* columns) {
  const Pattern& p = *pattern_;
  const int64_t n = count();
  if (p.codec == IndexCodec::kPacked) {
    for (int64_t i = 0; i < n; ++i) {
      columns[i] = static_cast<uint16_t>(
          PackedColumn(p.bits, p.column_bits, p.first + first_ + i));
    }
  } else {
    const int64_t bytes = p.matrix.row_bytes();
    const uint8_t* row = p.bits + row_ * bytes;
    int64_t i = 0;
    for (int64_t at = 0; at < bytes; at += 8) {
      uint64_t word = 0;
      std::memcpy(&word, row + at,
                  static_cast<size_t>(std::min<int64_t>(8, bytes - at)));
      for (; word != 0; word &= word - 1) {
        columns[i++] = static_cast<uint16_t>(8 * at + std::countr_zero(word));
      }
    }
  }
  first_ += n;
  ++row_;
}

PoolLayout::PoolLayout(std::vector<BlockMatrix> matrices, WeightBlock block,
                       int64_t kept, IndexCodec codec)
    : matrices_(std::move(matrices)),
      block_(block),
      kept_(kept),
      codec_(codec) {
  TH_CHECK(!matrices_.empty() && kept_ > 0);
  int64_t widest = 0;
  for (const BlockMatrix& m : matrices_) widest = std::max(widest, m.columns);
  column_bits_ = ColumnBits(widest);
  size_t at = matrices_.size() * sizeof(uint32_t);
  for (const BlockMatrix& m : matrices_) {
    counts_.push_back(at);
    at += static_cast<size_t>(m.rows) * sizeof(uint16_t);
  }
  at = RoundUp(at, kBitsAlignment);
  for (const BlockMatrix& m : matrices_) {
    bits_.push_back(at);
    if (codec_ == IndexCodec::kBitmap) {
      at += static_cast<size_t>(m.rows * m.row_bytes());
    }
  }
  if (codec_ == IndexCodec::kPacked) {
    const auto bits = static_cast<size_t>(kept_ * column_bits_);
    at += (bits + 7) / 8 + kLoad;
  }
  index_bytes_ = RoundUp(at, kBitsAlignment);
}

PoolLayout PoolLayout::Smallest(std::vector<BlockMatrix> matrices,
                                WeightBlock block, int64_t kept) {
  PoolLayout packed(matrices, block, kept, IndexCodec::kPacked);
  PoolLayout bitmap(std::move(matrices), block, kept, IndexCodec::kBitmap);
  return bitmap.index_bytes() <= packed.index_bytes() ? bitmap : packed;
}

Pattern PoolLayout::Of(const std::byte* index, size_t m) const {
  const auto* kept = reinterpret_cast<const uint32_t*>(index);
  int64_t first = 0;
  for (size_t i = 0; i < m; ++i) first += kept[i];
  return Of(index, m, first);
}

Pattern PoolLayout::Of(const std::byte* index, size_t m, int64_t first) const {
  Pattern pattern{.matrix = matrices_[m],
                  .block = block_,
                  .codec = codec_,
                  .column_bits = column_bits_,
                  .first = first};
  const auto* kept = reinterpret_cast<const uint32_t*>(index);
  pattern.kept = kept[m];
  pattern.counts = reinterpret_cast<const uint16_t*>(index + counts_[m]);
  pattern.bits = reinterpret_cast<const uint8_t*>(index + bits_[m]);
  return pattern;
}

void PoolLayout::WriteRow(std::byte* index, size_t m, int64_t row,
                          int64_t entry,
                          std::span<const uint16_t> columns) const {
  const auto n = static_cast<int64_t>(columns.size());
  TH_CHECK(n <= matrices_[m].columns && entry + n <= kept_);
  reinterpret_cast<uint16_t*>(index + counts_[m])[row] =
      static_cast<uint16_t>(n);
  auto* bits = reinterpret_cast<uint8_t*>(index + bits_[m]);
  if (codec_ == IndexCodec::kPacked) {
    PackColumns(bits, column_bits_, entry, columns);
    return;
  }
  const int64_t bytes = matrices_[m].row_bytes();
  bits += row * bytes;
  std::memset(bits, 0, static_cast<size_t>(bytes));
  for (const uint16_t column : columns) {
    bits[column / 8] =
        static_cast<uint8_t>(bits[column / 8] | 1u << (column % 8));
  }
}

PoolLayout::Writer::Writer(const PoolLayout& layout, std::byte* index)
    : layout_(layout), index_(index) {
  std::memset(index, 0, layout.index_bytes());
}

void PoolLayout::Writer::Row(std::span<const uint16_t> columns) {
  layout_.WriteRow(index_, matrix_, row_, written_, columns);
  const auto n = static_cast<int64_t>(columns.size());
  reinterpret_cast<uint32_t*>(index_)[matrix_] += static_cast<uint32_t>(n);
  written_ += n;
  if (++row_ < layout_.matrix(matrix_).rows) return;
  row_ = 0;
  ++matrix_;
}

namespace {

Status CheckRow(const Pattern& pattern, PatternReader& reader) {
  const int64_t row = reader.row();
  const int64_t n = reader.count();
  if (n > pattern.matrix.columns) {
    return Status::Failed(fmt::format("row {} keeps {} of {} blocks", row, n,
                                      pattern.matrix.columns));
  }
  if (pattern.codec == IndexCodec::kBitmap) {
    const uint8_t* bits = pattern.bits + row * pattern.matrix.row_bytes();
    int64_t set = 0;
    for (int64_t i = 0; i < pattern.matrix.row_bytes(); ++i) {
      set += std::popcount(bits[i]);
    }
    const int64_t spare =
        8 * pattern.matrix.row_bytes() - pattern.matrix.columns;
    const uint8_t last = bits[pattern.matrix.row_bytes() - 1];
    if (set != n || (last >> (8 - spare)) != 0) {
      return Status::Failed(
          fmt::format("row {} keeps {} blocks, its bits say {}", row, n, set));
    }
  }
  std::vector<uint16_t> columns(static_cast<size_t>(n));
  reader.Read(columns.data());
  for (size_t i = 0; i < columns.size(); ++i) {
    if (columns[i] < pattern.matrix.columns &&
        (i == 0 || columns[i - 1] < columns[i])) {
      continue;
    }
    return Status::Failed(fmt::format("row {} has column {} of {} out of order",
                                      row, columns[i], pattern.matrix.columns));
  }
  return Status::Ok();
}

}  // namespace

Status CheckIndex(const PoolLayout& layout, std::span<const std::byte> index) {
  if (index.size() != layout.index_bytes()) {
    return Status::Failed(fmt::format("the index has {} bytes, not {}",
                                      index.size(), layout.index_bytes()));
  }
  int64_t kept = 0;
  for (size_t m = 0; m < layout.size(); ++m) {
    kept += layout.Of(index.data(), m, kept).kept;
  }
  if (kept != layout.kept()) {
    return Status::Failed(
        fmt::format("the index keeps {} blocks, not {}", kept, layout.kept()));
  }
  int64_t first = 0;
  for (size_t m = 0; m < layout.size(); ++m) {
    const Pattern pattern = layout.Of(index.data(), m, first);
    first += pattern.kept;
    int64_t of_rows = 0;
    for (int64_t r = 0; r < pattern.matrix.rows; ++r) {
      of_rows += pattern.counts[r];
    }
    if (of_rows != pattern.kept) {
      return Status::Failed(
          fmt::format("the rows of matrix {} keep {} blocks in all, not {}", m,
                      of_rows, pattern.kept));
    }
    PatternReader reader(pattern);
    while (reader.row() < pattern.matrix.rows) {
      const Status status = CheckRow(pattern, reader);
      if (status.ok()) continue;
      return Status::Failed(
          fmt::format("matrix {} of the index: {}", m, status.message()));
    }
  }
  return Status::Ok();
}

}  // namespace thimble
