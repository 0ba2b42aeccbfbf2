// SPDX-License-Identifier: Apache-2.0
#include "thimble/sparsity.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace thimble {
namespace {

using Columns = std::vector<uint16_t>;
// By matrix, then row.
using Rows = std::vector<std::vector<Columns>>;

int64_t KeptIn(const Rows& rows) {
  int64_t kept = 0;
  for (const auto& matrix : rows) {
    for (const Columns& row : matrix) kept += static_cast<int64_t>(row.size());
  }
  return kept;
}

// Each block is kept with the probability `density`.
Rows RandomRows(const std::vector<BlockMatrix>& matrices, double density,
                std::mt19937& random) {
  std::bernoulli_distribution keeps(density);
  Rows rows;
  for (const BlockMatrix& m : matrices) {
    auto& matrix = rows.emplace_back(static_cast<size_t>(m.rows));
    for (Columns& row : matrix) {
      for (int64_t c = 0; c < m.columns; ++c) {
        if (keeps(random)) row.push_back(static_cast<uint16_t>(c));
      }
    }
  }
  if (KeptIn(rows) == 0) rows[0][0].push_back(0);
  return rows;
}

std::vector<std::byte> IndexOf(const PoolLayout& layout, const Rows& rows) {
  std::vector<std::byte> index(layout.index_bytes());
  PoolLayout::Writer writer(layout, index.data());
  for (const auto& matrix : rows) {
    for (const Columns& row : matrix) writer.Row(row);
  }
  return index;
}

Columns ReadRow(PatternReader& reader) {
  Columns row(static_cast<size_t>(reader.count()));
  reader.Read(row.data());
  return row;
}

TEST(Sparsity, CountsBitsAndBlocks) {
  EXPECT_EQ(ColumnBits(1), 1);
  EXPECT_EQ(ColumnBits(144), 8);
  EXPECT_EQ(ColumnBits(256), 8);
  EXPECT_EQ(ColumnBits(257), 9);
  EXPECT_EQ(ColumnBits(1152), 11);
  const auto conv = BlocksOf({32, 16, 3, 3}, {});
  EXPECT_EQ(*conv, (BlockMatrix{32, 144}));
  EXPECT_EQ(*BlocksOf({32, 16, 3, 3}, {2, 4}), (BlockMatrix{16, 36}));
  EXPECT_EQ(*BlocksOf({512, 1024}, {}), (BlockMatrix{512, 1024}));
  EXPECT_EQ(BlocksOf({32, 3, 3, 3}, {2, 2}).status().message(),
            "blocks of 2 outputs by 2 inputs do not divide a weight "
            "[32, 3, 3, 3]");
  EXPECT_FALSE(BlocksOf({2, 65536}, {}).ok());
}

TEST(Sparsity, TheExampleOfTheHeaderIsTrue) {
  const Rows rows = {{{1, 2}, {2}}};
  const PoolLayout packed({{2, 3}}, {}, 3, IndexCodec::kPacked);
  const auto index = IndexOf(packed, rows);
  EXPECT_EQ(index[0], std::byte{3});
  EXPECT_EQ(index[4], std::byte{2});
  EXPECT_EQ(index[6], std::byte{1});
  EXPECT_EQ(index[packed.BitsOffset(0)], std::byte{0b101001});
  const PoolLayout bitmap({{2, 3}}, {}, 3, IndexCodec::kBitmap);
  const auto bits = IndexOf(bitmap, rows);
  EXPECT_EQ(bits[bitmap.BitsOffset(0)], std::byte{0b110});
  EXPECT_EQ(bits[bitmap.BitsOffset(0) + 1], std::byte{0b100});
}

TEST(Sparsity, EveryRowIsReadAsItWasWritten) {
  std::mt19937 random(1);
  const std::vector<BlockMatrix> shapes = {{3, 1},     {16, 144}, {5, 1152},
                                           {7, 65535}, {1, 9},    {4, 64}};
  for (const double density : {0.0, 0.02, 0.3, 1.0}) {
    for (int round = 0; round < 4; ++round) {
      std::vector<BlockMatrix> matrices = shapes;
      std::ranges::shuffle(matrices, random);
      const Rows rows = RandomRows(matrices, density, random);
      for (const IndexCodec codec :
           {IndexCodec::kPacked, IndexCodec::kBitmap}) {
        SCOPED_TRACE(IndexCodecName(codec));
        const PoolLayout layout(matrices, {}, KeptIn(rows), codec);
        const auto index = IndexOf(layout, rows);
        ASSERT_TRUE(CheckIndex(layout, index).ok());
        int64_t first = 0;
        for (size_t m = 0; m < matrices.size(); ++m) {
          const Pattern pattern = layout.Of(index.data(), m);
          ASSERT_EQ(pattern.first, first);
          PatternReader reader(pattern);
          for (int64_t r = 0; r < matrices[m].rows; ++r) {
            // From there on, too.
            PatternReader there(pattern, r);
            ASSERT_EQ(there.first(), reader.first());
            ASSERT_EQ(ReadRow(there), rows[m][static_cast<size_t>(r)]);
            ASSERT_EQ(ReadRow(reader), rows[m][static_cast<size_t>(r)]);
          }
          ASSERT_EQ(reader.first(), pattern.kept);
          first += pattern.kept;
        }
      }
    }
  }
}

TEST(Sparsity, TheSmallerIndexIsChosen) {
  const std::vector<BlockMatrix> matrices = {{128, 1152}};
  const PoolLayout dense = PoolLayout::Smallest(matrices, {}, 44'236);
  EXPECT_EQ(dense.codec(), IndexCodec::kBitmap);
  // A bit for each of 147,456, 16 bits for each row, and the count.
  EXPECT_EQ(dense.index_bytes(), 18'432u + 256u + 8u);
  const PoolLayout sparse = PoolLayout::Smallest(matrices, {}, 7'000);
  EXPECT_EQ(sparse.codec(), IndexCodec::kPacked);
  // 11 bits for each; and what a load may reach beyond the last one.
  EXPECT_EQ(sparse.index_bytes(), 9'625u + 256u + 8u + 8u + 7u);
}

TEST(Sparsity, AnIndexFromOutsideIsChecked) {
  std::mt19937 random(2);
  const std::vector<BlockMatrix> matrices = {{8, 30}, {4, 100}};
  for (const IndexCodec codec : {IndexCodec::kPacked, IndexCodec::kBitmap}) {
    SCOPED_TRACE(IndexCodecName(codec));
    const Rows rows = RandomRows(matrices, 0.3, random);
    const PoolLayout layout(matrices, {}, KeptIn(rows), codec);
    const auto good = IndexOf(layout, rows);
    EXPECT_FALSE(CheckIndex(layout, std::span(good).first(10)).ok());
    int refused = 0;
    const auto bits = 8 * good.size();
    for (size_t bit = 0; bit < bits; ++bit) {
      auto damaged = good;
      damaged[bit / 8] ^= std::byte(1u << (bit % 8));
      // Whatever is accepted can be read: every column exists.
      if (!CheckIndex(layout, damaged).ok()) {
        ++refused;
        continue;
      }
      for (size_t m = 0; m < matrices.size(); ++m) {
        const Pattern pattern = layout.Of(damaged.data(), m);
        PatternReader reader(pattern);
        for (int64_t r = 0; r < matrices[m].rows; ++r) {
          for (const uint16_t c : ReadRow(reader)) {
            ASSERT_LT(c, matrices[m].columns);
          }
        }
      }
    }
    // All counts, and in a bitmap all bits.
    EXPECT_GE(refused,
              codec == IndexCodec::kBitmap ? 8 * (8 + 24 + 84) : 8 * 32);
  }
}

TEST(Sparsity, AnUnknownIndexIsRefused) {
  EXPECT_EQ(*ParseIndexCodec("bitmap"), IndexCodec::kBitmap);
  EXPECT_EQ(ParseIndexCodec("csr").status().message(),
            "unknown index 'csr'; it is packed or bitmap");
}

}  // namespace
}  // namespace thimble
