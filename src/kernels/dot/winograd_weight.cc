// SPDX-License-Identifier: Apache-2.0
//
// The gradient of the weights.
#include <algorithm>

#include "base/check.h"
#include "kernels/conv/weight_units.h"
#include "kernels/dot/dot_form.h"
#include "kernels/dot/flush.h"
#include "kernels/dot/winograd.h"
#include "kernels/dot/winograd_kernels.h"
#include "kernels/dot/winograd_pass.h"
#include "kernels/dot/winograd_strips.h"

namespace thimble::kernels::dot {
namespace {

struct WeightCall {
  const WinogradKernels& kernels;
  const WinogradWeightPass& pass;
  const Conv2dInput& x;
  const ConstTensor& grad_y;
};

// One unit of work, and its scratch.
struct WeightWork {
  WeightWork(const WinogradWeightPass& pass, void* scratch)
      : sums(static_cast<float*>(scratch)),
        grad(reinterpret_cast<uint32_t*>(sums + pass.sum_floats())),
        slice(grad + pass.grad_words()),
        tiles(slice + pass.slice_words()) {}
  float* sums;      // [channel][slice][column][output]
  uint32_t* grad;   // [strip][row of a tile][pair of tiles][output][tile]
  uint32_t* slice;  // [column][strip][pair of tiles][output]
  uint32_t* tiles;  // of kGradChannels channels
  int64_t first_output = 0;
  int64_t first_channel = 0;
  int64_t channels = 0;
};

// Adds what strips [strip, strip + strips) of the batch give.
void AddStrips(const WeightCall& call, const WeightWork& work, int64_t strip,
               int64_t strips) {
  const FlushDenormals flush;
  const WinogradWeightPass& pass = call.pass;
  const int64_t strip_grad = conv::kStripPixels / 2 * pass.block;
  const conv::StripGrid grad_grid = {pass.shape.out_channels, pass.grid.height,
                                     pass.grid.width};
  const Conv2dInput grad_y{.x = call.grad_y};
  BatchStrip at[kMostGradStrips];
  for (int64_t s = 0; s < strips; ++s) {
    at[s] = StripOf(pass.grid, call.x, strip + s, work.first_channel, strips);
    call.kernels.transpose_grad(
        at[s].rows,
        PlanesOf(grad_grid, grad_y, strip + s, work.first_output, strips),
        pass.block, work.grad + s * strip_grad);
  }
  for (int64_t slice = 0; slice < conv::kSlices; ++slice) {
    call.kernels.transform_grad(work.grad, pass.block, slice, strips,
                                work.slice);
    for (int64_t c = 0; c < work.channels; c += kGradChannels) {
      call.kernels.transform_tiles(at, strips, c, slice, work.tiles);
      call.kernels.multiply_grad(
          work.slice, work.tiles, pass.block, strips, strip == 0,
          work.sums + c * GradSumStride(pass.block) + 4 * slice * pass.block);
    }
  }
}

void SumUnit(const WeightCall& call, const WeightWork& work, int64_t images) {
  const WinogradWeightPass& pass = call.pass;
  const int64_t strips = images * pass.grid.image_strips();
  if (strips == 0) {
    std::fill_n(work.sums, work.channels * GradSumStride(pass.block), 0.0f);
    return;
  }
  // As evenly as can be: few strips at a time cost more for each.
  const int64_t rounds = conv::CeilDiv(strips, pass.strips);
  const int64_t step = conv::CeilDiv(strips, rounds);
  for (int64_t s = 0; s < strips; s += step) {
    AddStrips(call, work, s, std::min(step, strips - s));
  }
  const FlushDenormals flush;
  call.kernels.fold(pass.block, work.channels,
                    reinterpret_cast<float*>(work.grad), work.sums);
}

}  // namespace

bool RunWinogradWeightGrad(const Conv2dShape& shape, int64_t images,
                           const Conv2dInput& x, const ConstTensor& grad_y,
                           const Conv2dGradWeightTarget& grad_w,
                           WeightWriter write, const KernelContext& context) {
  if (ActiveDotForm() == DotForm::kNone) return false;
  if (!IsBf16(x.x) || !IsBf16(grad_y)) return false;
  WinogradWeightPass pass;
  if (!MakeWinogradWeightPass(shape, conv::WeightScratchOf(shape),
                              grad_w.pieces != nullptr, pass)) {
    return false;
  }
  const WeightCall call{ActiveWinogradKernels(), pass, x, grad_y};
  conv::ForWeightUnits(
      shape, {pass.block, pass.chunk, static_cast<int64_t>(pass.Bytes() / 4)},
      grad_w, context, [&](const conv::WeightUnit& unit, float* scratch) {
        WeightWork work(pass, scratch);
        // Half a block where there are 16 outputs in two regions: its other
        // half is summed up for nothing.
        const int64_t before = unit.first_output % pass.block;
        TH_CHECK(before + unit.outputs <= pass.block);
        work.first_output = unit.first_output - before;
        work.first_channel = unit.first_channel;
        work.channels = unit.channels;
        SumUnit(call, work, images);
        write(unit.to, work.sums + before, pass.block, unit.outputs,
              unit.channels * 9, unit.at, unit.stride);
      });
  return true;
}

}  // namespace thimble::kernels::dot
