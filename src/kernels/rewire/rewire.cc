// SPDX-License-Identifier: Apache-2.0
#include "kernels/rewire/rewire.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/rng.h"
#include "kernels/rewire/choose_change.h"
#include "kernels/rewire/matrix_change.h"
#include "kernels/rewire/rewrite_matrix.h"

namespace thimble::kernels {
namespace {

// The parts of the scratch, in bytes.
struct ScratchParts {
  explicit ScratchParts(const PoolLayout& layout) {
    int64_t columns = 0;
    int64_t blocks = 0;
    for (size_t m = 0; m < layout.size(); ++m) {
      columns = std::max(columns, layout.matrix(m).columns);
      blocks = std::max(blocks, layout.matrix(m).blocks());
    }
    bits = layout.size() * sizeof(MatrixChange);
    row = bits + static_cast<size_t>((blocks + 63) / 64) * sizeof(uint64_t);
    end = row + static_cast<size_t>((columns + 3) / 4) * 4 * sizeof(uint16_t);
  }

  size_t bits, row, end;  // changes begin at 0
};
static_assert(sizeof(MatrixChange) % 8 == 0);

void ReadCounts(const PoolLayout& layout, const std::byte* index,
                std::span<MatrixChange> changes) {
  int64_t first = 0;
  for (size_t m = 0; m < changes.size(); ++m) {
    changes[m] = {.blocks = layout.matrix(m).blocks(),
                  .first = first,
                  .kept = layout.Of(index, m).kept};
    first += changes[m].kept;
  }
  TH_CHECK(first == layout.kept());
}

void Decide(const PoolLayout& layout, const Tensor& weights,
            const RewireOptions& options, std::span<MatrixChange> changes) {
  const int64_t block_values = layout.block().values();
  if (options.method == RewireMethod::kSet) {
    PruneSmallest(options.fraction, weights, block_values, changes);
  } else {
    PruneBelow(options.threshold, weights, block_values, changes);
    ShareGrowth(RandomStream(options.seed, options.step, kGrowthStream),
                changes);
  }
  int64_t first = 0;
  for (MatrixChange& change : changes) {
    change.new_first = first;
    first += change.new_kept();
  }
  TH_CHECK(first == layout.kept());
}

// A matrix whose new place reaches into the old place of its left neighbour has
// to come after it; that is where their boundary moves to the left. Where it
// moves to the right, it is the other way round. So runs of matrices whose
// boundaries move to the right are taken from their ends.
void RewriteAll(const RewiredPool& pool, std::span<const MatrixChange> changes,
                const RewireOptions& options, const MatrixScratch& scratch) {
  for (size_t begin = 0; begin < changes.size();) {
    size_t end = begin + 1;
    while (end < changes.size() &&
           changes[end].new_first > changes[end].first) {
      ++end;
    }
    for (size_t m = end; m-- > begin;) {
      const MatrixChange& change = changes[m];
      if (change.is_none() && change.new_first == change.first) continue;
      RewriteMatrix(pool, m, change, options.seed, options.step, scratch);
    }
    begin = end;
  }
}

void Clear(const PoolLayout& layout, const Tensor& pool) {
  int64_t values = layout.kept() * layout.block().values();
  if (pool.is_in_blocks()) {
    values += ConstTensor::kBlock * static_cast<int64_t>(layout.size());
  }
  std::memset(pool.data(), 0, BytesFor(pool.dtype(), values));
  if (!pool.is_in_blocks()) return;
  const int64_t scales =
      (values + ConstTensor::kBlock - 1) / ConstTensor::kBlock;
  std::memset(pool.scales(), 0,
              static_cast<size_t>(scales) * sizeof(*pool.scales()));
}

}  // namespace

size_t RewireScratchBytes(const PoolLayout& layout) {
  return ScratchParts(layout).end;
}

RewireResult Rewire(const PoolLayout& layout, std::byte* index,
                    const Tensor& weights, std::span<const Tensor> states,
                    const RewireOptions& options, std::byte* scratch) {
  TH_CHECK(reinterpret_cast<uintptr_t>(scratch) % 8 == 0);
  const ScratchParts parts(layout);
  const std::span changes(reinterpret_cast<MatrixChange*>(scratch),
                          layout.size());
  ReadCounts(layout, index, changes);
  Decide(layout, weights, options, changes);

  const bool moves_states = options.reset == StateReset::kNewBlocks;
  for (const Tensor& state : states) {
    TH_CHECK(!state.is_sparse() && (!moves_states || !state.is_in_blocks()));
  }
  const RewiredPool pool{layout, index, weights,
                         moves_states ? states : std::span<const Tensor>()};
  RewriteAll(pool, changes, options,
             {.columns = reinterpret_cast<uint16_t*>(scratch + parts.row),
              .bits = reinterpret_cast<uint64_t*>(scratch + parts.bits)});

  RewireResult result{.threshold = options.threshold};
  auto* kept = reinterpret_cast<uint32_t*>(index);
  for (size_t m = 0; m < changes.size(); ++m) {
    const MatrixChange& change = changes[m];
    kept[m] = static_cast<uint32_t>(change.new_kept());
    result.pruned += change.pruned;
    result.survivors += change.survivors();
    result.regrown += change.regrown();
  }
  if (options.method == RewireMethod::kDsr) {
    result.threshold =
        NextThreshold(options.threshold, result.pruned, options.target);
  }
  if (!moves_states) {
    for (const Tensor& state : states) Clear(layout, state);
  }
  return result;
}

}  // namespace thimble::kernels
