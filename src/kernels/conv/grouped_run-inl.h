// SPDX-License-Identifier: Apache-2.0
//
// The grouped convolution (grouped.h) over a batch. Included once per SIMD
// target, after <hwy/highway.h>; hence no `#pragma once`.
#if defined(THIMBLE_KERNELS_CONV_GROUPED_RUN_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef THIMBLE_KERNELS_CONV_GROUPED_RUN_INL_H_
#undef THIMBLE_KERNELS_CONV_GROUPED_RUN_INL_H_
#else
#define THIMBLE_KERNELS_CONV_GROUPED_RUN_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "kernels/conv/grouped-inl.h"
#include "kernels/conv/grouped_tile-inl.h"
#include "kernels/conv/pack-inl.h"
#include "kernels/conv/unit_order.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3

// What does not change during a call.
struct GroupedCall {
  const conv::GroupedPass& pass;
  const Conv2dInput& input;
  const ConstTensor& weights;
  const conv::Sink& sink;
  int64_t images;
  int64_t pair;
  int64_t row_vectors;
  bool in_place;       // source rows are read where they lie
  int64_t row_floats;  // between rows, there or in the tile
  conv::TapGroup groups[4][conv::kGroups];  // of each phase
  int64_t group_counts[4];
};

// A thread's scratch, and what is in it.
struct GroupedWork {
  float* tile;
  float* weights;
  float* sums;  // [phase][image][output][position]
  float* line;
  conv::Partial* partials;  // of the group's outputs
  int64_t group = -1;       // whose weights are packed
  OutputBlocks blocks;
  TileSpan span;
  const float* source;  // the span's rows, channels this far apart
  int64_t channel_floats;
  int64_t missing_rows;  // above the image
};

// Outputs that there are from `first` on, at most `most`.
int64_t OutputsThere(const conv::GroupedPass& p, int64_t first, int64_t most) {
  return HWY_MIN(most, p.outputs - first);
}

// Weights of group `group`, block after block; within a block phases, groups of
// taps, channels, taps, outputs.
void PackGroup(const GroupedCall& call, int64_t group, GroupedWork& work) {
  const conv::GroupedPass& pass = call.pass;
  const int64_t first = group * pass.group;
  const int64_t all = OutputsThere(pass, first, pass.group);
  work.group = group;
  work.blocks = SplitOutputs(all, call.row_vectors);
  for (int64_t b = 0; b < work.blocks.count(); ++b) {
    PackPlan plan;
    plan.taps = pass.taps();
    plan.outputs = work.blocks.outputs(b);
    const int64_t at = work.blocks.first(b);
    plan.there = HWY_MIN(all - at, plan.outputs);
    int64_t place = 0;
    for (int64_t p = 0; p < pass.phases * pass.phases; ++p) {
      for (int64_t g = 0; g < call.group_counts[p]; ++g) {
        const conv::TapGroup& taps = call.groups[p][g];
        for (int64_t t = 0; t < taps.count; ++t) {
          const int64_t weight = taps.taps[t].weight;
          plan.places[weight] = place + t * plan.outputs;
          plan.steps[weight] = taps.count * plan.outputs;
        }
        place += pass.channels * taps.count * plan.outputs;
      }
    }
    PackBlock(pass, plan, call.weights, first + at, work.line,
              work.weights + at * pass.channels * pass.taps());
  }
}

// The taps of phase `phase` that meet rows of the image, for a register tile at
// its top (or bottom) row. The tile begins `missing_rows` later than taps
// expect; `weights` are the block's.
void ListSpans(const GroupedCall& call, int64_t phase, int64_t outputs,
               bool top, bool bottom, int64_t missing_rows,
               const float* weights, GroupedSum& sum) {
  const conv::GroupedPass& pass = call.pass;
  for (int64_t p = 0; p < phase; ++p) {
    for (int64_t g = 0; g < call.group_counts[p]; ++g) {
      weights += pass.channels * call.groups[p][g].count * outputs;
    }
  }
  sum.span_count = call.group_counts[phase];
  for (int64_t g = 0; g < sum.span_count; ++g) {
    const conv::TapGroup& group = call.groups[phase][g];
    GroupSpan& span = sum.spans[g];
    int64_t begin = 0, end = group.count;
    while (top && begin < end && group.taps[begin].row < 0) ++begin;
    while (bottom && begin < end && group.taps[end - 1].row > 0) --end;
    span.weights = weights + begin * outputs;
    span.channel_weights = group.count * outputs;
    span.move = group.move;
    span.count = end - begin;
    for (int64_t t = begin; t < end; ++t) {
      span.offsets[t - begin] =
          group.taps[t].offset - missing_rows * call.row_floats;
    }
    weights += pass.channels * group.count * outputs;
  }
}

// All rows of the tile, for one phase of one block. sum.out is the first row's.
void SumRows(const GroupedCall& call, const GroupedWork& work, int64_t phase,
             int64_t outputs, const float* weights, GroupedSum& sum) {
  const conv::GroupedPass& pass = call.pass;
  const TileSpan& span = work.span;
  const Mover mover(pass.width);
  ListSpans(call, phase, outputs, false, false, work.missing_rows, weights,
            sum);
  GroupedSum edge = sum;
  // Rows at the image's edge have fewer taps, and go alone.
  const int64_t inside_end =
      pass.height - (pass.below > 0 ? 1 : 0) - span.first;
  float* const out = sum.out;
  for (int64_t r = 0; r < span.rows;) {
    const int64_t row = span.first + r;
    const bool top = row == 0 && pass.above > 0;
    const bool bottom = row == pass.height - 1 && pass.below > 0;
    int64_t rows = 1;
    if (top || bottom) {
      ListSpans(call, phase, outputs, top, bottom, work.missing_rows, weights,
                edge);
    } else if (call.row_vectors == 1) {
      rows = HWY_MIN(kMostRows, HWY_MIN(span.rows, inside_end) - r);
    }
    GroupedSum& here = top || bottom ? edge : sum;
    here.out = out + r * pass.width;
    ChooseTile(outputs, pass.width, call.row_vectors, rows,
               call.in_place && span.pair > 1)(
        here, mover, work.source + r * call.row_floats);
    r += rows;
  }
}

// Rows 2u and 2u + 1 of one output, from the sums of its four phases.
void InterleaveFour(const GroupedCall& call, const GroupedWork& work,
                    const float* sums, int64_t phase_floats, float* to) {
  const hn::CappedTag<float, 8> d;
  const int64_t width = call.pass.width;
  for (int64_t r = 0; r < work.span.rows; ++r) {
    for (int64_t a = 0; a < 2; ++a, to += 2 * width) {
      const float* even = sums + 2 * a * phase_floats + r * width;
      const float* odd = even + phase_floats;
      for (int64_t i = 0; i < width; i += 8) {
        hn::StoreInterleaved2(hn::LoadU(d, even + i), hn::LoadU(d, odd + i), d,
                              to + 2 * i);
      }
    }
  }
}

// Sums of one block of outputs that are in scratch, to where they belong.
void WriteBlock(const GroupedCall& call, const GroupedWork& work,
                int64_t first_output, int64_t first_in_group, int64_t there,
                const GroupedSum& sum) {
  const conv::GroupedPass& pass = call.pass;
  const TileSpan& span = work.span;
  const int64_t scale = pass.phases * pass.phases;
  const int64_t plane = scale * pass.height * pass.width;
  for (int64_t p = 0; p < span.images; ++p) {
    for (int64_t o = 0; o < there; ++o) {
      const int64_t channel = first_output + o;
      const int64_t offset =
          ((span.image + p) * pass.outputs + channel) * plane +
          scale * span.first * pass.width;
      float* sums = work.sums + p * conv::kBlockOutputs * sum.output_floats +
                    o * sum.output_floats;
      float* from = sums;
      if (pass.phases == 2) {
        const bool plain = call.sink.plain();
        from = plain ? call.sink.to.f32() + offset : work.line;
        InterleaveFour(call, work, sums,
                       span.pair * conv::kBlockOutputs * sum.output_floats,
                       from);
        if (plain) continue;
      }
      WriteRow(call.sink, channel, offset, scale * span.rows * pass.width, from,
               work.partials + first_in_group + o);
    }
  }
}

// Asks for the lines that WriteBlock will write, while sums are on their way.
void PrefetchResults(const GroupedCall& call, const TileSpan& span,
                     int64_t first_output, int64_t there) {
  if (!call.sink.to.is_there()) return;
  const conv::GroupedPass& pass = call.pass;
  const int64_t scale = pass.phases * pass.phases;
  const int64_t plane = scale * pass.height * pass.width;
  const auto bytes = static_cast<int64_t>(
      BytesFor(call.sink.to.dtype(), scale * span.rows * pass.width));
  for (int64_t i = 0; i < span.images * there; ++i) {
    const int64_t offset =
        ((span.image + i / there) * pass.outputs + first_output + i % there) *
            plane +
        scale * span.first * pass.width;
    const auto* at =
        static_cast<const std::byte*>(call.sink.to.From(offset).data());
    for (int64_t b = 0; b < bytes; b += 64) __builtin_prefetch(at + b, 1, 2);
  }
}

// One block of the packed group's outputs, on the tile in scratch.
void SumGroupedBlock(const GroupedCall& call, GroupedWork& work,
                     int64_t block) {
  const conv::GroupedPass& pass = call.pass;
  const TileSpan& span = work.span;
  const int64_t outputs = work.blocks.outputs(block);
  const int64_t at = work.blocks.first(block);
  const int64_t first = work.group * pass.group + at;
  const int64_t there = OutputsThere(pass, first, outputs);
  const float* weights = work.weights + at * pass.channels * pass.taps();
  const int64_t plane = pass.height * pass.width;
  GroupedSum sum;
  sum.channels = pass.channels;
  sum.channel_floats = work.channel_floats;
  // An image without a partner is its own.
  sum.split_floats = span.images > 1 ? pass.channels * work.channel_floats : 0;
  const bool direct = call.sink.plain() && pass.phases == 1 &&
                      there == outputs && span.images == span.pair;
  if (direct) {
    sum.output_floats = plane;
    sum.pair_floats = span.pair == 1 ? 0 : pass.outputs * plane;
    sum.out = call.sink.to.f32() + (span.image * pass.outputs + first) * plane +
              span.first * pass.width;
    // Of few channels, sums are done before the lines would be there.
    if (pass.channels >= 32) PrefetchSums(sum, outputs, span.rows * pass.width);
    SumRows(call, work, 0, outputs, weights, sum);
    return;
  }
  if (pass.phases == 2) PrefetchResults(call, span, first, there);
  sum.output_floats = pass.block_rows * pass.width;
  const int64_t image_floats = conv::kBlockOutputs * sum.output_floats;
  sum.pair_floats = span.pair == 1 ? 0 : image_floats;
  for (int64_t phase = 0; phase < pass.phases * pass.phases; ++phase) {
    sum.out = work.sums + phase * span.pair * image_floats;
    SumRows(call, work, phase, outputs, weights, sum);
  }
  WriteBlock(call, work, first, at, there, sum);
}

// Sets work.source to the span's rows: where they lie, if they can be read as
// they are, else copied into scratch.
void FindTile(const GroupedCall& call, GroupedWork& work) {
  const conv::GroupedPass& pass = call.pass;
  const int64_t above = work.span.first - RowsOf(pass, work.span).begin;
  work.missing_rows = pass.step == 1 ? pass.above - above : 0;
  if (call.in_place) {
    work.channel_floats = pass.src_height * pass.width;
    work.source = call.input.x.f32() +
                  work.span.image * pass.channels * work.channel_floats +
                  (work.span.first - above) * pass.width;
    return;
  }
  LoadGroupedTile(pass, call.input, work.span, work.tile);
  work.source = work.tile;
  work.channel_floats = pass.channel_rows() * pass.row_floats();
}

// Group `group` of outputs, of the tile that work.span tells.
void SumGroupedTile(const GroupedCall& call, GroupedWork& work, int64_t group) {
  if (work.group != group) PackGroup(call, group, work);
  FindTile(call, work);
  for (int64_t b = 0; b < work.blocks.count(); ++b) {
    SumGroupedBlock(call, work, b);
  }
}

// Tile number `tile` of the images that begin at `image`.
HWY_INLINE TileSpan SpanOf(const GroupedCall& call, int64_t image,
                           int64_t tile) {
  TileSpan span;
  span.image = image;
  span.images = HWY_MIN(call.pair, call.images - image);
  span.pair = call.pair;
  span.first = tile * call.pass.block_rows;
  span.rows = HWY_MIN(call.pass.block_rows, call.pass.height - span.first);
  return span;
}

// Group `group` of outputs of all images of chunk `chunk`, whose sums are kept
// together.
void SumGroupedChunk(const GroupedCall& call, GroupedWork& work, int64_t group,
                     int64_t chunk, int64_t chunk_images) {
  const conv::GroupedPass& pass = call.pass;
  const int64_t first = group * pass.group;
  const int64_t outputs = OutputsThere(pass, first, pass.group);
  for (int64_t o = 0; o < outputs; ++o) work.partials[o] = conv::Partial();
  const int64_t begin = chunk * chunk_images;
  const int64_t end = HWY_MIN(call.images, begin + chunk_images);
  for (int64_t image = begin; image < end; image += call.pair) {
    for (int64_t tile = 0; tile < pass.blocks(); ++tile) {
      work.span = SpanOf(call, image, tile);
      SumGroupedTile(call, work, group);
    }
  }
  conv::KeepPartials(work.partials, outputs,
                     call.sink.partials + 2 * (chunk * pass.outputs + first));
}

#endif  // 8 lanes

}  // namespace

// False where this target has no such way.
bool RunGrouped(const conv::GroupedPass& pass, int64_t images,
                const Conv2dInput& input, const ConstTensor& weights,
                const conv::Sink& sink, const KernelContext& context) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  const int64_t lanes = LaneCount();
  GroupedCall call{pass, input, weights, sink, images};
  call.pair = pass.pair();
  call.row_vectors = pass.row_floats() / lanes;
  call.in_place = IsPlain(input) && pass.step == 1 && !SharesSets();
  call.row_floats = call.in_place ? pass.width : pass.row_floats();
  for (int64_t p = 0; p < pass.phases * pass.phases; ++p) {
    call.group_counts[p] =
        conv::ListGroups(pass, call.row_floats, p / pass.phases,
                         p % pass.phases, call.groups[p]);
  }
  const int64_t pixels = pass.phases * pass.phases * pass.height * pass.width;
  const int64_t chunk_images = conv::ChunkImages(pixels);
  const int64_t tiles = pass.blocks();
  // A step is what one unit of work advances by: images of a chunk, or of one
  // vector, which then have `tiles` units.
  const int64_t step = sink.reducing() ? chunk_images : call.pair;
  const int64_t step_units = sink.reducing() ? 1 : tiles;
  const conv::UnitOrder order(
      pass.groups(), conv::CeilDiv(images, step) * step_units,
      conv::CeilDiv(pass.cached_images(), step) * step_units);
  context.pool->ParallelFor(order.count(), [&](int64_t begin, int64_t end,
                                               int thread) {
    GroupedWork work;
    work.tile = context.PerThread<float>(thread);
    work.weights = work.tile + pass.tile_floats();
    work.sums = work.weights + pass.weight_floats();
    work.line = work.sums + pass.sum_floats();
    work.partials =
        reinterpret_cast<conv::Partial*>(work.line + pass.line_floats());
    for (int64_t i = begin; i < end; ++i) {
      const int64_t group = order.group(i);
      const int64_t unit = order.unit(i);
      if (sink.reducing()) {
        SumGroupedChunk(call, work, group, unit, chunk_images);
      } else {
        // Later groups find it in the cache.
        if (i + 1 < end && order.group(i + 1) == 0) {
          const int64_t next = order.unit(i + 1);
          PrefetchSpan(pass, input,
                       SpanOf(call, next / tiles * call.pair, next % tiles));
        }
        work.span = SpanOf(call, unit / tiles * call.pair, unit % tiles);
        SumGroupedTile(call, work, group);
      }
    }
  });
  return true;
#else
  (void)pass, (void)images, (void)input, (void)weights, (void)sink,
      (void)context;
  return false;
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
