// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <cmath>
#include <vector>

#include "base/check.h"
#include "base/rng.h"
#include "kernels/rewire/rewire.h"
#include "kernels/rewire/selection.h"

namespace thimble::kernels {

void WriteInitialIndex(const PoolLayout& layout, std::span<const int64_t> kept,
                       uint64_t seed, std::byte* index) {
  TH_CHECK(kept.size() == layout.size());
  int64_t total = 0;
  for (const int64_t k : kept) total += k;
  TH_CHECK(total == layout.kept());
  PoolLayout::Writer writer(layout, index);
  std::vector<uint16_t> columns;
  for (size_t m = 0; m < layout.size(); ++m) {
    const BlockMatrix& matrix = layout.matrix(m);
    PositionNumbers numbers(seed, 0, PatternStream(static_cast<uint32_t>(m)));
    Selection selection(numbers, matrix.blocks(), kept[m]);
    for (int64_t r = 0; r < matrix.rows; ++r) {
      columns.clear();
      for (int64_t c = 0; c < matrix.columns; c += kSweep) {
        uint64_t chosen = selection.Take(r * matrix.columns + c,
                                         FirstBits(matrix.columns - c));
        for (; chosen != 0; chosen &= chosen - 1) {
          columns.push_back(
              static_cast<uint16_t>(c + std::countr_zero(chosen)));
        }
      }
      writer.Row(columns);
    }
  }
}

}  // namespace thimble::kernels
