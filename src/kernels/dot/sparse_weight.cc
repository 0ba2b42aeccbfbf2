// SPDX-License-Identifier: Apache-2.0
#include "kernels/dot/sparse_weight.h"

#include <algorithm>
#include <cstring>

#include "kernels/dot/dot_form.h"
#include "kernels/dot/flush.h"
#include "kernels/dot/sparse.h"
#include "kernels/grad_sink/grad_sink.h"

#if defined(__x86_64__)
#define THIMBLE_DOT_INCLUDE "kernels/dot/sparse_weight-inl.h"
#include "kernels/dot/foreach_build.h"
#endif

namespace thimble::kernels::dot {

#if defined(__x86_64__)
namespace {

// One build of sparse_weight-inl.h.
struct WeightBuild {
  decltype(&dot_native::FillSparseTile) fill;
  decltype(&dot_native::UnpackPlaces) unpack;
  decltype(&dot_native::AddSparseWeights) add;
  decltype(&dot_native::OrderSums) order;
};

struct WeightCall {
  const SparseWeightPass& pass;
  WeightBuild build;
  int64_t images;
  const Conv2dInput& x;
  const uint16_t* grad_y;
  const Pattern& pattern;
  const PieceSink& sink;
};

// As many blocks as fit from block `begin` on, before `end`: where that is not
// the end, whole units.
KeptRange NextRange(const WeightCall& call, const KeptRange& before,
                    int64_t end) {
  const SparseWeightPass& pass = call.pass;
  const Pattern& pattern = call.pattern;
  KeptRange range = before;
  range.begin = before.end;
  while (range.begin < end &&
         range.first + pattern.counts[range.row] <= range.begin) {
    range.first += pattern.counts[range.row++];
  }
  const int64_t values = pattern.block.values();
  const int64_t fill = (kListUnit - 1) * pass.lists() * pattern.block.outputs;
  int64_t left = pass.records;  // room
  int64_t first = range.first;
  range.end = range.begin;
  for (int64_t row = range.row; range.end < end; ++row) {
    if ((row - range.row + 1) * pattern.block.outputs > kSparseRows) break;
    const int64_t last = std::min(end, first + pattern.counts[row]);
    const int64_t count = last - range.end;
    first += pattern.counts[row];
    // A list is filled up with three at most, or by as many as it has thrice.
    const int64_t most =
        std::min(kListUnit * count * values, count * values + fill);
    if (most <= left) {
      left -= most;
      range.end = last;
      continue;
    }
    const int64_t room = std::max(left / kListUnit, left - fill) / values;
    range.end += std::max<int64_t>(0, std::min(count, room));
    break;
  }
  if (range.end < end) {
    range.end -= (range.end - range.begin) % pass.unit();
  }
  return range;
}

// Sums of a range over all images, handed to the sink.
void SumRange(const WeightCall& call, const KeptRange& range,
              const SparseWeightScratch& scratch) {
  const SparseWeightPass& pass = call.pass;
  const SparsePass& tiles = pass.tiles;
  const int64_t values = call.pattern.block.values();
  {
    const FlushDenormals flush;
    const int64_t outputs =
        call.build.unpack(pass, call.pattern, range, scratch);
    const int64_t output = range.row * call.pattern.block.outputs;
    const int64_t count =
        conv::CeilDiv(call.images * tiles.bands(), tiles.segments());
    for (int64_t t = 0; t < count; ++t) {
      const SparseSegments segments = SegmentsOf(tiles, call.images, t);
      for (int64_t k = 0; k < tiles.chunks(); ++k) {
        const int64_t first = k * tiles.chunk;
        call.build.fill(tiles, call.x, segments, first,
                        std::min(tiles.chunk, tiles.channels - first),
                        scratch.tile);
        for (int64_t i = 0; i < outputs; ++i) {
          call.build.add(pass, segments, call.grad_y, output + i, i, k,
                         scratch);
        }
      }
    }
    call.build.order(pass, outputs, scratch);
  }
  call.sink.Take(range.begin * values, (range.end - range.begin) * values,
                 scratch.ordered);
}

WeightBuild ActiveWeightBuild() {
  return {THIMBLE_DOT_TABLE(FillSparseTile).Get(),
          THIMBLE_DOT_TABLE(UnpackPlaces).Get(),
          THIMBLE_DOT_TABLE(AddSparseWeights).Get(),
          THIMBLE_DOT_TABLE(OrderSums).Get()};
}

// Threads share units.
void RunRanges(const WeightCall& call, const KernelContext& context) {
  const int64_t unit = call.pass.unit();
  context.pool->ParallelFor(
      conv::CeilDiv(call.pattern.kept, unit),
      [&](int64_t begin, int64_t end, int thread) {
        const SparseWeightScratch scratch(call.pass,
                                          context.PerThread<std::byte>(thread));
        const int64_t last = std::min(end * unit, call.pattern.kept);
        KeptRange range = {0, begin * unit, 0, 0};
        while (range.end < last) {
          range = NextRange(call, range, last);
          SumRange(call, range, scratch);
        }
      });
}

}  // namespace

bool RunSparseWeight(const Conv2dShape& shape, int64_t images,
                     const Conv2dInput& x, const ConstTensor& grad_y,
                     const Conv2dGradWeightTarget& grad_w,
                     const KernelContext& context) {
  if (grad_w.pattern == nullptr || x.x.dtype() != DType::kBF16 ||
      grad_y.dtype() != DType::kBF16) {
    return false;
  }
  SparseWeightPass pass;
  if (!MakeSparseWeightPass(shape, pass)) return false;
  const Tensor to = grad_w.to.values();
  const StoredSink stored(to, grad_w.accumulate ? to : ConstTensor::None(), {});
  const WeightCall call{pass,
                        ActiveWeightBuild(),
                        images,
                        x,
                        grad_y.halves(DType::kBF16),
                        *grad_w.pattern,
                        grad_w.pieces == nullptr ? stored : *grad_w.pieces};
  RunRanges(call, context);
  return true;
}

#else

bool RunSparseWeight(const Conv2dShape&, int64_t, const Conv2dInput&,
                     const ConstTensor&, const Conv2dGradWeightTarget&,
                     const KernelContext&) {
  return false;  // no other CPU has dot products
}

#endif

}  // namespace thimble::kernels::dot
