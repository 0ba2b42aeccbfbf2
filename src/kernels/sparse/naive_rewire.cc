// SPDX-License-Identifier: Apache-2.0
#include "kernels/sparse/naive_rewire.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/half.h"
#include "base/rng.h"

namespace thimble::kernels::testing {
namespace {

using Positions = std::vector<size_t>;  // ascending

// Which of `candidates` are chosen when `wanted` are.
Positions Choose(const Positions& candidates, size_t wanted,
                 const RewireOptions& options, size_t matrix) {
  const uint32_t stream = PatternStream(static_cast<uint32_t>(matrix)) + 2;
  const RandomStream leading(options.seed, options.step, stream);
  const RandomStream others(options.seed, options.step, stream + 1);
  Positions chosen;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const uint64_t p = candidates[i];
    const uint64_t byte = leading.Bits(p / 4) >> (8 * (p % 4)) & 0xFF;
    const uint64_t number = byte << 24 | others.Bits(p) >> 8;
    const uint64_t scaled = number * (candidates.size() - i) >> 32;
    if (scaled < wanted - chosen.size()) chosen.push_back(candidates[i]);
  }
  EXPECT_EQ(chosen.size(), wanted);
  return chosen;
}

Positions Where(const std::vector<bool>& mask, bool value) {
  Positions positions;
  for (size_t p = 0; p < mask.size(); ++p) {
    if (mask[p] == value) positions.push_back(p);
  }
  return positions;
}

Positions PrunedOf(const RewireOptions& options, DType dtype,
                   const NaiveMatrix& matrix) {
  Positions kept = Where(matrix.kept, true);
  const auto magnitude = [&](size_t p) {
    return NaiveMagnitude(dtype, matrix.values[0][p]);
  };
  if (options.method == RewireMethod::kSet) {
    const size_t free = matrix.kept.size() - kept.size();
    auto n = static_cast<size_t>(
        std::floor(options.fraction * static_cast<double>(kept.size())));
    if (!kept.empty()) n = std::min(n, kept.size() - 1);
    std::ranges::stable_sort(kept, {}, magnitude);
    kept.resize(std::min(n, free));
    std::ranges::sort(kept);
    return kept;
  }
  Positions pruned;
  for (const size_t p : kept) {
    if (magnitude(p) < options.threshold) pruned.push_back(p);
  }
  if (!kept.empty() && pruned.size() == kept.size())
    pruned.erase(pruned.begin());
  return pruned;
}

// By matrix. Shares are products of small numbers, which f64 divides well
// enough to tell halves.
std::vector<int64_t> Growth(const RewireOptions& options,
                            const std::vector<int64_t>& survivors,
                            std::vector<int64_t> room,
                            const std::vector<int64_t>& pruned) {
  const RandomStream random(options.seed, options.step, kGrowthStream);
  uint64_t draw = 0;
  const auto below = [&](uint64_t n) { return random.Bits(draw++) * n >> 32; };
  const int64_t all = std::reduce(survivors.begin(), survivors.end());
  int64_t left = std::reduce(pruned.begin(), pruned.end());
  std::vector<int64_t> grown(room.size()), wanted(room.size());
  const auto place = [&](size_t m, int64_t n) {
    n = std::clamp<int64_t>(n, 0, std::min(left, room[m]));
    grown[m] += n;
    room[m] -= n;
    left -= n;
  };
  while (left > 0) {
    const int64_t before = left;
    for (size_t m = 0; m < room.size(); ++m) {
      wanted[m] = static_cast<int64_t>(std::nearbyint(
          static_cast<double>(survivors[m] * left) / static_cast<double>(all)));
    }
    const int64_t sum = std::reduce(wanted.begin(), wanted.end());
    if (sum != left) wanted[below(wanted.size())] += left - sum;
    for (size_t m = 0; m < room.size(); ++m) place(m, wanted[m]);
    if (left < before) continue;
    std::vector<size_t> open;
    for (size_t m = 0; m < room.size(); ++m) {
      if (room[m] > 0) open.push_back(m);
    }
    if (open.empty()) {
      room = pruned;
    } else {
      place(open[below(open.size())], left);
    }
  }
  return grown;
}

}  // namespace

int64_t NaiveMatrix::CountKept() const {
  return std::count(kept.begin(), kept.end(), true);
}

float NaiveMagnitude(DType dtype, std::span<const std::byte> block) {
  const size_t size = BytesFor(dtype, 1);
  float sum = 0;
  for (size_t at = 0; at < block.size(); at += size) {
    float value = 0;
    uint16_t half = 0;
    if (dtype == DType::kF32) {
      std::memcpy(&value, &block[at], sizeof(value));
    } else {
      std::memcpy(&half, &block[at], sizeof(half));
      value = dtype == DType::kF16 ? F16Value(half) : BF16Value(half);
    }
    sum += std::abs(value);
  }
  const size_t values = block.size() / size;
  return sum / static_cast<float>(values);
}

std::vector<std::byte> NaivePool::Stored(size_t t) const {
  std::vector<std::byte> stored;
  for (const NaiveMatrix& m : matrices) {
    for (const size_t p : Where(m.kept, true)) {
      stored.insert(stored.end(), m.values[t][p].begin(), m.values[t][p].end());
    }
  }
  return stored;
}

void NaivePool::Read(const PoolLayout& layout, const std::byte* index,
                     std::span<const Tensor> tensors) {
  block = layout.block();
  dtypes.clear();
  for (const Tensor& t : tensors) dtypes.push_back(t.dtype());
  matrices.assign(layout.size(), {});
  std::vector<uint16_t> columns(65536);
  int64_t entry = 0;
  for (size_t m = 0; m < layout.size(); ++m) {
    const Pattern pattern = layout.Of(index, m);
    NaiveMatrix& matrix = matrices[m];
    matrix.columns = pattern.matrix.columns;
    matrix.kept.resize(static_cast<size_t>(pattern.matrix.blocks()));
    matrix.values.assign(tensors.size(), std::vector<std::vector<std::byte>>(
                                             matrix.kept.size()));
    PatternReader reader(pattern);
    while (reader.row() < pattern.matrix.rows) {
      const int64_t n = reader.count();
      const int64_t row = reader.row() * matrix.columns;
      reader.Read(columns.data());
      for (int64_t i = 0; i < n; ++i, ++entry) {
        const auto p =
            static_cast<size_t>(row + columns[static_cast<size_t>(i)]);
        matrix.kept[p] = true;
        for (size_t t = 0; t < tensors.size(); ++t) {
          const size_t bytes = BytesFor(dtypes[t], block.values());
          const auto* from = static_cast<const std::byte*>(tensors[t].data()) +
                             static_cast<size_t>(entry) * bytes;
          matrix.values[t][p].assign(from, from + bytes);
        }
      }
    }
  }
}

std::vector<std::byte> NaivePool::Index(const PoolLayout& layout) const {
  std::vector<std::byte> index(layout.index_bytes());
  PoolLayout::Writer writer(layout, index.data());
  for (const NaiveMatrix& m : matrices) {
    for (int64_t row = 0; row < m.blocks(); row += m.columns) {
      std::vector<uint16_t> columns;
      for (int64_t c = 0; c < m.columns; ++c) {
        if (m.kept[static_cast<size_t>(row + c)]) {
          columns.push_back(static_cast<uint16_t>(c));
        }
      }
      writer.Row(columns);
    }
  }
  return index;
}

RewireResult NaiveRewire(const RewireOptions& options, NaivePool& pool) {
  std::vector<Positions> free, pruned;
  std::vector<int64_t> survivors, room, lost;
  RewireResult result{.threshold = options.threshold};
  for (NaiveMatrix& m : pool.matrices) {
    free.push_back(Where(m.kept, false));
    pruned.push_back(PrunedOf(options, pool.dtypes[0], m));
    for (const size_t p : pruned.back()) m.kept[p] = false;
    survivors.push_back(m.CountKept());
    room.push_back(static_cast<int64_t>(free.back().size()));
    lost.push_back(static_cast<int64_t>(pruned.back().size()));
    result.pruned += lost.back();
    result.survivors += survivors.back();
  }
  const auto grown = options.method == RewireMethod::kSet
                         ? lost
                         : Growth(options, survivors, room, lost);
  for (size_t m = 0; m < pool.matrices.size(); ++m) {
    NaiveMatrix& matrix = pool.matrices[m];
    const int64_t at_free = std::min(grown[m], room[m]);
    const int64_t at_pruned = grown[m] - at_free;
    result.regrown += at_pruned;
    Positions born = Choose(free[m], static_cast<size_t>(at_free), options, m);
    const Positions again =
        Choose(pruned[m], static_cast<size_t>(at_pruned), options, m);
    born.insert(born.end(), again.begin(), again.end());
    for (const size_t p : born) {
      matrix.kept[p] = true;
      for (size_t t = 0; t < pool.dtypes.size(); ++t) {
        matrix.values[t][p].assign(
            BytesFor(pool.dtypes[t], pool.block.values()), std::byte{0});
      }
    }
  }
  const auto k = static_cast<double>(result.pruned);
  const auto target = static_cast<double>(options.target);
  if (options.method == RewireMethod::kDsr) {
    if (k > 1.1 * target) result.threshold /= 2;
    if (k < 0.9 * target) result.threshold *= 2;
  }
  return result;
}

}  // namespace thimble::kernels::testing
