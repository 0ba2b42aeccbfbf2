// SPDX-License-Identifier: Apache-2.0
//
// Forward pass and gradient of the input. The gradient of the weights is in
// winograd_weight.cc.
#include "kernels/dot/winograd.h"

#include <algorithm>

#include "kernels/conv/grouped.h"
#include "kernels/conv/unit_order.h"
#include "kernels/dot/dot_form.h"
#include "kernels/dot/flush.h"
#include "kernels/dot/winograd_kernels.h"
#include "kernels/dot/winograd_pass.h"
#include "kernels/dot/winograd_strips.h"

namespace thimble::kernels::dot {
namespace {

// What does not change during a call.
struct PassCall {
  const WinogradKernels& kernels;
  const WinogradPass& pass;
  const Conv2dInput& input;
  const ConstTensor& weights;
  const conv::Sink& sink;
  RowWriter write;
};

// A thread's scratch.
struct PassWork {
  PassWork(const WinogradPass& pass, void* scratch)
      : weights(static_cast<uint32_t*>(scratch)),
        tiles(weights + pass.weight_words()),
        sums(reinterpret_cast<float*>(tiles + pass.tile_words())),
        line(sums + pass.sum_floats()),
        partials(reinterpret_cast<conv::Partial*>(line + pass.line_floats())) {}
  uint32_t* weights;
  uint32_t* tiles;
  float* sums;  // [strip][output][row][column][tile]
  float* line;
  conv::Partial* partials;      // of the group's outputs
  int64_t resident_group = -1;  // whose weights are there for all slices
};

int64_t OutputsOf(const WinogradPass& pass, int64_t group) {
  return std::min(pass.group, pass.outputs - group * pass.group);
}

// Weights of slice `slice`, of channels from `channel` on:
// [16 outputs][pair of channels][column][output].
const uint32_t* SliceWeights(const PassCall& call, PassWork& work,
                             int64_t group, int64_t slice, int64_t channel,
                             int64_t channels) {
  const WinogradPass& pass = call.pass;
  uint32_t* to = work.weights;
  if (pass.resident) {
    to += slice * pass.slice_words();
    if (work.resident_group == group) return to;
    if (slice == conv::kSlices - 1) work.resident_group = group;
  }
  const auto* from = call.weights.halves(DType::kBF16) +
                     group * pass.group * pass.output_weights +
                     channel * pass.channel_weights;
  for (int64_t o = 0; o < OutputsOf(pass, group); o += kOutputBlock) {
    call.kernels.transform_weights(from + o * pass.output_weights,
                                   pass.output_weights, pass.channel_weights,
                                   channels, slice, pass.forward,
                                   to + o * channels / 2 * 4);
  }
  return to;
}

// A row of results of one channel, from element `offset` on, to where they
// belong. As conv/'s writer, but without bringing pixels into their order
// first, where that can be done without.
void WriteSumRow(const PassCall& call, const SumRow& row, int64_t channel,
                 int64_t offset, float* line, conv::Partial& partial) {
  const conv::Sink& sink = call.sink;
  const int64_t pixels = row.strips * conv::kStripPixels;
  if (!sink.x.is_there()) {
    const double sum =
        call.kernels.write_sums(row, Bf16At(sink.residual, offset),
                                sink.moments, Bf16At(sink.to, offset));
    if (!sink.moments) return;
    // As MergeMoments of conv/rows-inl.h.
    const auto count = static_cast<double>(pixels);
    const auto center = static_cast<float>(sum / count);
    const RowSums off = call.kernels.sum_deviations(row, center);
    double m2 = off.second - off.first * off.first / count;
    if (m2 < 0.0) m2 = 0.0;  // a NaN stays
    partial.Merge(count, center + off.first / count, m2);
  } else if (sink.known_sums == nullptr && IsBf16(sink.x)) {
    const RowSums sums =
        call.kernels.write_masked(row, Bf16At(sink.x, offset),
                                  {.scale = sink.scale[channel],
                                   .shift = sink.shift[channel],
                                   .mean = sink.mean[channel],
                                   .inv_std = sink.inv_std[channel]},
                                  Bf16At(sink.to, offset));
    partial.first += sums.first;
    partial.second += sums.second;
  } else {
    call.kernels.order_pixels(row, line);
    call.write(sink, channel, offset, pixels, line, &partial);
  }
}

// `strips` sums of one output of the group. Strips of one image are neighbours
// in the result.
void WriteStrips(const PassCall& call, PassWork& work, int64_t group,
                 int64_t output, int64_t first_strip, int64_t strips) {
  const WinogradPass& pass = call.pass;
  const int64_t channel = group * pass.group + output;
  const int64_t image_strips = pass.grid.image_strips();
  const int64_t stride = pass.group * conv::kStripPixels;
  for (int64_t s = 0; s < strips;) {
    const int64_t strip = first_strip + s;
    const int64_t in_image = strip % image_strips;
    const int64_t n = std::min(strips - s, image_strips - in_image);
    const int64_t offset =
        ((strip / image_strips * pass.outputs + channel) * image_strips +
         in_image) *
        conv::kStripPixels;
    WriteSumRow(call,
                {.width = pass.grid.width,
                 .strips = n,
                 .sums = work.sums + s * stride + output * conv::kStripPixels,
                 .stride = stride},
                channel, offset, work.line, work.partials[output]);
    s += n;
  }
}

// The products of group `group` of outputs of a block of strips.
void SumProducts(const PassCall& call, PassWork& work, int64_t group,
                 int64_t first_strip, int64_t strips) {
  const FlushDenormals flush;
  const WinogradPass& pass = call.pass;
  const int64_t outputs = OutputsOf(pass, group);
  for (int64_t slice = 0; slice < conv::kSlices; ++slice) {
    for (int64_t c = 0; c < pass.grid.channels; c += pass.chunk) {
      const int64_t channels = std::min(pass.chunk, pass.grid.channels - c);
      const uint32_t* weights =
          SliceWeights(call, work, group, slice, c, channels);
      for (int64_t s = 0; s < strips; ++s) {
        const int64_t strip = first_strip + s;
        call.kernels.transform_input(
            RowsOf(pass.grid, strip % pass.grid.image_strips()),
            PlanesOf(pass.grid, call.input, strip, c), channels, slice,
            work.tiles);
        float* sums = work.sums + s * pass.group * conv::kStripPixels;
        for (int64_t o = 0; o < outputs; o += kOutputBlock) {
          call.kernels.multiply(work.tiles, weights + o * channels / 2 * 4,
                                channels, slice, c == 0,
                                sums + o * conv::kStripPixels);
        }
      }
    }
  }
}

void SumStrips(const PassCall& call, PassWork& work, int64_t group,
               int64_t first_strip, int64_t strips) {
  SumProducts(call, work, group, first_strip, strips);
  for (int64_t o = 0; o < OutputsOf(call.pass, group); ++o) {
    WriteStrips(call, work, group, o, first_strip, strips);
  }
}

// Group `group` of all strips of chunk `chunk` of images, whose sums are kept
// together.
void SumStripChunk(const PassCall& call, PassWork& work, int64_t group,
                   int64_t chunk, int64_t first_strip, int64_t strips) {
  const WinogradPass& pass = call.pass;
  const int64_t outputs = OutputsOf(pass, group);
  for (int64_t o = 0; o < outputs; ++o) work.partials[o] = conv::Partial();
  for (int64_t s = 0; s < strips; s += pass.strips) {
    SumStrips(call, work, group, first_strip + s,
              std::min(pass.strips, strips - s));
  }
  conv::KeepPartials(
      work.partials, outputs,
      call.sink.partials + 2 * (chunk * pass.outputs + group * pass.group));
}

// How a call's work is divided: into groups of outputs, and those into units of
// strips. Threads share the strips of all groups evenly; a unit goes to the one
// that has its first.
struct PassUnits {
  PassUnits(const WinogradPass& pass, int64_t images, bool reducing)
      : strips(images * pass.grid.image_strips()),
        unit_strips(
            reducing ? conv::ChunkImages(pass.grid.height * pass.grid.width) *
                           pass.grid.image_strips()
                     : pass.strips),
        order(pass.groups(), conv::CeilDiv(strips, unit_strips),
              std::max<int64_t>(conv::kCachedBytes / UnitBytes(pass), 1)) {}
  int64_t UnitBytes(const WinogradPass& pass) const {
    return unit_strips * conv::kStripPixels * pass.grid.channels * 2;
  }
  // Calls f(group, unit, first strip, strips) for those of [begin, end).
  template <typename F>
  void ForEach(int64_t begin, int64_t end, const F& f) const {
    int64_t at = 0;
    for (int64_t i = 0; i < order.count() && at < end; ++i) {
      const int64_t first = order.unit(i) * unit_strips;
      const int64_t n = std::min(unit_strips, strips - first);
      if (at >= begin) f(order.group(i), order.unit(i), first, n);
      at += n;
    }
  }
  int64_t strips;
  int64_t unit_strips;
  conv::UnitOrder order;
};

// What the thread with most work has to do, in the unit of CostOf.
int64_t BusiestCost(const WinogradPass& pass, int64_t images, bool reducing,
                    int64_t threads) {
  const PassUnits units(pass, images, reducing);
  const int64_t all = pass.groups() * units.strips;
  int64_t most = 0;
  for (int64_t t = 0; t < threads; ++t) {
    int64_t sums = 0;
    units.ForEach(all * t / threads, all * (t + 1) / threads,
                  [&](int64_t group, int64_t, int64_t, int64_t n) {
                    sums += n * OutputsOf(pass, group);
                  });
    most = std::max(most, sums);
  }
  return most * (2 * pass.grid.channels + CostOf(pass) / 1024);
}

// With smaller groups where threads can share them better.
WinogradPass SharedPass(WinogradPass pass, int64_t images, bool reducing,
                        int64_t threads) {
  if (threads == 1) return pass;
  WinogradPass best = pass;
  int64_t least = BusiestCost(pass, images, reducing, threads);
  while (pass.group % (2 * kOutputBlock) == 0) {
    pass.group /= 2;
    const int64_t cost = BusiestCost(pass, images, reducing, threads);
    if (cost >= least) continue;
    least = cost;
    best = pass;
  }
  return best;
}

void RunUnits(const PassCall& call, int64_t images,
              const KernelContext& context) {
  const WinogradPass& pass = call.pass;
  const bool reducing = call.sink.reducing();
  const PassUnits units(pass, images, reducing);
  context.pool->ParallelFor(pass.groups() * units.strips, [&](int64_t begin,
                                                              int64_t end,
                                                              int thread) {
    PassWork work(pass, context.PerThread<void>(thread));
    units.ForEach(begin, end,
                  [&](int64_t group, int64_t unit, int64_t first, int64_t n) {
                    if (reducing) {
                      SumStripChunk(call, work, group, unit, first, n);
                    } else {
                      SumStrips(call, work, group, first, n);
                    }
                  });
  });
}

}  // namespace

bool RunWinograd(const Conv2dShape& shape, bool forward, size_t bytes,
                 int64_t images, const Conv2dInput& input,
                 const ConstTensor& weights, const conv::Sink& sink,
                 RowWriter write, const KernelContext& context) {
  if (ActiveDotForm() == DotForm::kNone) return false;
  if (!IsBf16(input.x) || !IsBf16(weights) || !IsBf16(sink.to)) return false;
  WinogradPass pass;
  if (!MakeWinogradPass(shape, forward, bytes, pass)) return false;
  pass = SharedPass(pass, images, sink.reducing(), context.pool->threads());
  RunUnits({ActiveWinogradKernels(), pass, input, weights, sink, write}, images,
           context);
  return true;
}

}  // namespace thimble::kernels::dot
