// SPDX-License-Identifier: Apache-2.0
//
// How the ways to the gradient of the weights share out their work, whether it
// is stored or handed over in pieces: those of conv/ and of dot/. Internal to
// these families; safe from every thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/conv/conv.h"
#include "kernels/conv/tile.h"
#include "kernels/grad_sink/grad_sink.h"

namespace thimble::kernels::conv {

// A block of outputs and a chunk of channels, and where their sums go: outputs
// are `stride` elements of `to` apart, the first one begins at `at`.
struct WeightUnit {
  int64_t first_output;
  int64_t outputs;
  int64_t first_channel;
  int64_t channels;
  Conv2dGradWeightTarget to;
  int64_t at;
  int64_t stride;
};

// Units of at most `most` outputs and `chunk` channels.
struct WeightBlocks {
  int64_t most;
  int64_t chunk;
  // What a unit takes of a thread's scratch; a region's sums lie behind it.
  int64_t floats;
};

// Threads share the pairs (block of outputs, chunk of channels).
template <typename SumUnit>
void ForStoredUnits(const Conv2dShape& s, const WeightBlocks& blocks,
                    const Conv2dGradWeightTarget& grad_w,
                    const KernelContext& context, const SumUnit& sum_unit) {
  const int64_t taps = s.kernel_h * s.kernel_w;
  const int64_t row = s.in_channels * taps;
  const int64_t chunks = CeilDiv(s.in_channels, blocks.chunk);
  context.pool->ParallelFor(
      CeilDiv(s.out_channels, blocks.most) * chunks,
      [&](int64_t begin, int64_t end, int thread) {
        for (int64_t unit = begin; unit < end; ++unit) {
          const int64_t output = unit / chunks * blocks.most;
          const int64_t channel = unit % chunks * blocks.chunk;
          sum_unit(
              WeightUnit{output, std::min(s.out_channels - output, blocks.most),
                         channel,
                         std::min(s.in_channels - channel, blocks.chunk),
                         grad_w, output * row + channel * taps, row},
              context.PerThread<float>(thread));
        }
      });
}

// Threads share regions; the units of one are summed up one after the other.
template <typename SumUnit>
void ForPieceUnits(const Conv2dShape& s, const WeightBlocks& blocks,
                   const PieceSink& sink, const KernelContext& context,
                   const SumUnit& sum_unit) {
  const int64_t taps = s.kernel_h * s.kernel_w;
  const GradRegions regions = WeightRegions(s);
  context.pool->ParallelFor(
      regions.count(), [&](int64_t begin, int64_t end, int thread) {
        auto* scratch = context.PerThread<float>(thread);
        float* sums = scratch + blocks.floats;
        for (int64_t i = begin; i < end; ++i) {
          const GradRegion r = regions.At(i);
          const int64_t channels = r.columns / taps;
          for (int64_t o = 0; o < r.outputs; o += blocks.most) {
            for (int64_t c = 0; c < channels; c += blocks.chunk) {
              sum_unit(WeightUnit{r.first_output + o,
                                  std::min(r.outputs - o, blocks.most),
                                  r.first_column / taps + c,
                                  std::min(channels - c, blocks.chunk),
                                  {.to = F32(sums)},
                                  o * r.columns + c * taps,
                                  r.columns},
                       scratch);
            }
          }
          regions.Hand(r, sums, sink);
        }
      });
}

// Calls sum_unit(unit, scratch) for all units. Sums do not depend on how they
// are grouped.
template <typename SumUnit>
void ForWeightUnits(const Conv2dShape& s, const WeightBlocks& blocks,
                    const Conv2dGradWeightTarget& grad_w,
                    const KernelContext& context, const SumUnit& sum_unit) {
  if (grad_w.pieces == nullptr) {
    ForStoredUnits(s, blocks, grad_w, context, sum_unit);
  } else {
    ForPieceUnits(s, blocks, *grad_w.pieces, context, sum_unit);
  }
}

// Bytes of a thread's scratch that a unit may take: of what is planned for a
// gradient that is stored, and for one in pieces, beside a region's sums.
struct WeightScratch {
  size_t stored;
  size_t in_pieces;
};

inline WeightScratch WeightScratchOf(const Conv2dShape& s) {
  const auto region = static_cast<size_t>(WeightRegions(s).Floats());
  return {Conv2dGradWeightWorkspace(s).per_thread,
          Conv2dGradPiecesWorkspace(s).per_thread - region * sizeof(float)};
}

}  // namespace thimble::kernels::conv
