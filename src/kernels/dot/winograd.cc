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

// Outputs that are worked on together: all of a group or, where threads share
// it, some; multiples of kOutputStep.
struct Outputs {
  int64_t first = 0;
  int64_t count = 0;

  int64_t end() const { return first + count; }
  int64_t block() const { return first / kOutputBlock * kOutputBlock; }
  bool operator==(const Outputs&) const = default;
};

// What does not change during a call.
struct PassCall {
  const WinogradKernels& kernels;
  const WinogradPass& pass;
  const Conv2dInput& input;
  const ConstTensor& weights;
  const conv::Sink& sink;
  RowWriter write;
};

// A thread's scratch. Outputs are counted from the first of their block.
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
  conv::Partial* partials;     // one for each output
  Outputs resident = {-1, 0};  // whose weights are there, of all channels
};

// Weights of channels from `channel` on:
// [16 outputs][slice][pair of channels][column][output].
void TransformWeights(const PassCall& call, PassWork& work,
                      const Outputs& outputs, int64_t channel,
                      int64_t channels) {
  const WinogradPass& pass = call.pass;
  if (work.resident == outputs) return;
  if (pass.resident()) work.resident = outputs;
  const auto* from =
      call.weights.halves(DType::kBF16) + channel * pass.channel_weights;
  for (int64_t o = outputs.block(); o < outputs.end(); o += kOutputBlock) {
    call.kernels.transform_weights(
        from + o * pass.output_weights, pass.output_weights,
        pass.channel_weights, channels, pass.forward,
        work.weights + (o - outputs.block()) * WordsOf(channels));
  }
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

constexpr int64_t kRowsAhead = 3;

// What a row of results needs is asked for while earlier ones are written.
void PrefetchRow(const conv::Sink& sink, int64_t offset, int64_t pixels) {
  for (const ConstTensor* tensor : {&sink.residual, &sink.x}) {
    if (!tensor->is_there() || !IsBf16(*tensor)) continue;
    const uint16_t* from = Bf16At(*tensor, offset);
    for (int64_t i = 0; i < pixels; i += 32) __builtin_prefetch(from + i);
  }
}

// `strips` sums of output `channel`. Strips of one image are neighbours in the
// result.
void WriteStrips(const PassCall& call, PassWork& work, const Outputs& outputs,
                 int64_t channel, int64_t first_strip, int64_t strips) {
  const WinogradPass& pass = call.pass;
  const int64_t output = channel - outputs.block();
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
    PrefetchRow(call.sink,
                offset + kRowsAhead * image_strips * conv::kStripPixels,
                n * conv::kStripPixels);
    WriteSumRow(call,
                {.width = pass.grid.width,
                 .strips = n,
                 .sums = work.sums + s * stride + output * conv::kStripPixels,
                 .stride = stride},
                channel, offset, work.line, work.partials[output]);
    s += n;
  }
}

// The products of a block of strips.
void SumProducts(const PassCall& call, PassWork& work, const Outputs& outputs,
                 int64_t first_strip, int64_t strips) {
  const FlushDenormals flush;
  const WinogradPass& pass = call.pass;
  BatchStrip at[kMostStrips];
  for (int64_t s = 0; s < strips; ++s) {
    at[s] = StripOf(pass.grid, call.input, first_strip + s, 0);
  }
  for (int64_t c = 0; c < pass.grid.channels; c += pass.chunk) {
    const int64_t channels = std::min(pass.chunk, pass.grid.channels - c);
    TransformWeights(call, work, outputs, c, channels);
    for (int64_t s = 0; s < strips; ++s) {
      call.kernels.transform_input(at[s].rows, at[s].planes.From(c), channels,
                                   work.tiles);
      float* sums = work.sums + s * pass.group * conv::kStripPixels;
      for (int64_t o = outputs.block(); o < outputs.end(); o += kOutputBlock) {
        const int64_t before = o - outputs.block();
        call.kernels.multiply(
            work.tiles, work.weights + before * WordsOf(channels), channels,
            {std::max(outputs.first - o, int64_t{0}),
             std::min(outputs.end() - o, kOutputBlock)},
            c == 0, sums + before * conv::kStripPixels);
      }
    }
  }
}

void SumStrips(const PassCall& call, PassWork& work, const Outputs& outputs,
               int64_t first_strip, int64_t strips) {
  SumProducts(call, work, outputs, first_strip, strips);
  for (int64_t o = outputs.first; o < outputs.end(); ++o) {
    WriteStrips(call, work, outputs, o, first_strip, strips);
  }
}

// All strips of chunk `chunk` of images, whose sums are kept together.
void SumStripChunk(const PassCall& call, PassWork& work, const Outputs& outputs,
                   int64_t chunk, int64_t first_strip, int64_t strips) {
  const WinogradPass& pass = call.pass;
  const int64_t before = outputs.first - outputs.block();
  for (int64_t o = 0; o < outputs.count; ++o) {
    work.partials[before + o] = conv::Partial();
  }
  for (int64_t s = 0; s < strips; s += pass.strips) {
    SumStrips(call, work, outputs, first_strip + s,
              std::min(pass.strips, strips - s));
  }
  conv::KeepPartials(
      work.partials + before, outputs.count,
      call.sink.partials + 2 * (chunk * pass.outputs + outputs.first));
}

// How a call's work is divided: into groups of outputs, and those into units of
// strips. Threads share the sums of all of them evenly, so that two may have
// outputs of the same unit: bits do not depend on it.
struct PassUnits {
  PassUnits(const WinogradPass& winograd, int64_t images, bool reducing)
      : pass(winograd),
        strips(images * pass.grid.image_strips()),
        unit_strips(
            reducing ? conv::ChunkImages(pass.grid.height * pass.grid.width) *
                           pass.grid.image_strips()
                     : pass.strips),
        order(pass.groups(), conv::CeilDiv(strips, unit_strips),
              std::max<int64_t>(conv::kCachedBytes / UnitBytes(), 1)) {}
  int64_t UnitBytes() const {
    return unit_strips * conv::kStripPixels * pass.grid.channels * 2;
  }
  // kOutputStep sums of a strip are one.
  int64_t count() const { return strips * (pass.outputs / kOutputStep); }
  // Calls f(outputs, unit, first strip, strips) for those of [begin, end).
  template <typename F>
  void ForEach(int64_t begin, int64_t end, const F& f) const {
    int64_t at = 0;
    for (int64_t i = 0; i < order.count() && at < end; ++i) {
      const int64_t first = order.unit(i) * unit_strips;
      const int64_t n = std::min(unit_strips, strips - first);
      const int64_t group = order.group(i) * pass.group;
      const int64_t steps =
          std::min(pass.group, pass.outputs - group) / kOutputStep;
      // A step belongs to the thread that has its first sum.
      const int64_t from =
          std::clamp<int64_t>(conv::CeilDiv(begin - at, n), 0, steps);
      const int64_t to =
          std::clamp<int64_t>(conv::CeilDiv(end - at, n), 0, steps);
      if (from < to) {
        f(Outputs{group + from * kOutputStep, (to - from) * kOutputStep},
          order.unit(i), first, n);
      }
      at += n * steps;
    }
  }
  const WinogradPass& pass;
  int64_t strips;
  int64_t unit_strips;
  conv::UnitOrder order;
};

void RunUnits(const PassCall& call, int64_t images,
              const KernelContext& context) {
  const bool reducing = call.sink.reducing();
  const PassUnits units(call.pass, images, reducing);
  context.pool->ParallelFor(
      units.count(), [&](int64_t begin, int64_t end, int thread) {
        PassWork work(call.pass, context.PerThread<void>(thread));
        units.ForEach(begin, end,
                      [&](const Outputs& outputs, int64_t unit, int64_t first,
                          int64_t n) {
                        if (reducing) {
                          SumStripChunk(call, work, outputs, unit, first, n);
                        } else {
                          SumStrips(call, work, outputs, first, n);
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
  RunUnits({ActiveWinogradKernels(), pass, input, weights, sink, write}, images,
           context);
  return true;
}

}  // namespace thimble::kernels::dot
