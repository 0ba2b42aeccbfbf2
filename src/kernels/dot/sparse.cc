// SPDX-License-Identifier: Apache-2.0
#include "kernels/dot/sparse.h"

#include <algorithm>
#include <cstring>

#include "kernels/dot/dot_form.h"
#include "kernels/dot/flush.h"

#if defined(__x86_64__)
#define THIMBLE_DOT_INCLUDE "kernels/dot/sparse-inl.h"
#include "kernels/dot/foreach_build.h"
#endif

namespace thimble::kernels::dot {

#if defined(__x86_64__)
namespace {

// One build of sparse-inl.h.
struct SparseBuild {
  decltype(&dot_native::FillSparseTile) fill;
  decltype(&dot_native::UnpackRecords) unpack;
  decltype(&dot_native::BeginTranspose) begin_transpose;
  decltype(&dot_native::TransposeRecords) transpose;
  decltype(&dot_native::SumSparse) sum;
  decltype(&dot_native::JoinSparsePhases) join;
};

// What does not change during a call.
struct SparseCall {
  const SparsePass& pass;
  SparseBuild build;
  const Conv2dInput& input;
  SparseWeights weights;
  const conv::Sink& sink;
  RowWriter write_row;
  int64_t images;
  bool plain;  // results are stored as they are, and nothing else

  // Results go from registers to the tensor.
  bool direct() const { return plain && pass.phases == 1; }
  int64_t segments() const { return images * pass.bands(); }
  int64_t tiles() const { return conv::CeilDiv(segments(), pass.segments()); }
  // That one thread works on where the sink reduces.
  int64_t chunk_tiles() const {
    const int64_t pixels = pass.out_height() * pass.out_width();
    return conv::ChunkImages(pixels) * pass.bands() / pass.segments();
  }
};

struct Range {
  int64_t begin;
  int64_t end;
};

// The element of the result at which a segment of an output begins.
int64_t ResultAt(const SparsePass& pass, const SparseSegments& segments,
                 int64_t segment, int64_t output) {
  const int64_t plane = segments.image[segment] * pass.outputs + output;
  return (plane * pass.out_height() + pass.scale() * segments.row[segment]) *
         pass.out_width();
}

// Writes the sums of an output. Segments of one image follow each
// other there as they do in the image.
void WriteOutput(const SparseCall& call, const SparseScratch& scratch,
                 const SparseSegments& segments, int64_t output, float* sums,
                 conv::Partial* partial) {
  const SparsePass& pass = call.pass;
  const int64_t size = segments.height * pass.cols;
  float* values = sums;
  if (pass.phases > 1) {
    values = scratch.sums + kSumOutputs * pass.output_sums();
    for (int64_t g = 0; g < segments.count; ++g) {
      call.build.join(pass, segments.height, sums + g * size, pass.positions(),
                      values + g * pass.phases * size);
    }
  }
  int64_t first = 0;
  for (int64_t g = 1; g <= segments.count; ++g) {
    if (g < segments.count && segments.image[g] == segments.image[first]) {
      continue;
    }
    call.write_row(call.sink, output, ResultAt(pass, segments, first, output),
                   (g - first) * pass.phases * size,
                   values + first * pass.phases * size, partial);
    first = g;
  }
}

// Sums of chunk `k` of `count` outputs from `output` on, which is number `i` of
// its block. Those of the last chunk are in scratch, or where they belong.
void SumOutputs(const SparseCall& call, const SparseScratch& scratch,
                const SparseSegments& segments, int64_t k, int64_t output,
                int64_t i, int64_t count) {
  const SparsePass& pass = call.pass;
  SparseSum sum;
  for (int64_t s = 0; s < kSlots; ++s) {
    sum.slots[s] =
        scratch.tile + pass.slot_plane[s] * pass.tile.plane_bytes(pass.chunk);
  }
  sum.pairs = scratch.records;
  sum.next_starts = pass.chunks() * pass.slots();
  sum.outputs = count;
  sum.first = k == 0;
  sum.last = k + 1 == pass.chunks();
  sum.height = segments.height;
  const int64_t pixels = pass.out_height() * pass.out_width();
  for (int64_t g = 0; g < kMostSegments; ++g) {
    // Sums have room for segments that do not exist.
    sum.to[g] = reinterpret_cast<uint16_t*>(scratch.sums);
    sum.next_to[g] = 0;
    if (!call.direct() || g >= segments.count) continue;
    sum.to[g] =
        call.sink.to.halves(DType::kBF16) + ResultAt(pass, segments, g, output);
    sum.next_to[g] = pixels;
  }
  for (int64_t phase = 0; phase < pass.phases; ++phase) {
    sum.starts = scratch.starts + (i * pass.chunks() + k) * pass.slots() +
                 phase * kSlots;
    sum.chunk_sums =
        scratch.chunk_sums + (i * pass.phases + phase) * pass.positions();
    sum.sums =
        call.direct() ? nullptr : scratch.sums + phase * pass.positions();
    call.build.sum(pass, sum);
  }
}

// A tile for a block of `count` outputs from `output` on.
void RunTile(const SparseCall& call, const SparseScratch& scratch, int64_t tile,
             bool loaded, int64_t output, int64_t count) {
  const SparsePass& pass = call.pass;
  const SparseSegments segments = SegmentsOf(pass, call.images, tile);
  for (int64_t k = 0; k < pass.chunks(); ++k) {
    const FlushDenormals flush;
    if (!loaded || pass.chunks() > 1) {
      const int64_t first = k * pass.chunk;
      call.build.fill(pass, call.input, segments, first,
                      std::min(pass.chunk, pass.channels - first),
                      scratch.tile);
    }
    if (k + 1 < pass.chunks() || call.direct()) {
      SumOutputs(call, scratch, segments, k, output, 0, count);
    }
  }
  if (call.direct()) return;
  for (int64_t i = 0; i < count; i += kSumOutputs) {
    const int64_t some = std::min(kSumOutputs, count - i);
    {
      const FlushDenormals flush;
      SumOutputs(call, scratch, segments, pass.chunks() - 1, output + i, i,
                 some);
    }
    // Denormals of other tensors are as they are from here on.
    for (int64_t j = 0; j < some; ++j) {
      WriteOutput(call, scratch, segments, output + i + j,
                  scratch.sums + j * pass.output_sums(),
                  scratch.partials + i + j);
    }
  }
}

// Tiles by outputs, of which a thread has all.
void RunShare(const SparseCall& call, const Range& tiles, const Range& outputs,
              const SparseScratch& scratch) {
  const SparsePass& pass = call.pass;
  const int64_t block = call.weights.pattern.block.outputs;
  const int64_t chunk = call.chunk_tiles();
  if (!pass.forward) {
    call.build.begin_transpose(pass, call.weights, outputs.begin, scratch);
  }
  int64_t first = 0;  // entry of the row of the first output
  int64_t row = 0;
  int64_t loaded = -1;
  for (int64_t o = outputs.begin; o < outputs.end;) {
    int64_t count = 0;
    if (pass.forward) {
      for (; row < o / block; ++row) first += call.weights.pattern.counts[row];
      count =
          call.build.unpack(pass, call.weights, o, outputs.end, first, scratch);
    } else {
      count = call.build.transpose(pass, call.weights, o, outputs.end, scratch);
      loaded = -1;
    }
    for (int64_t t = tiles.begin; t < tiles.end; ++t) {
      if (call.sink.reducing() && t % chunk == 0) {
        std::fill_n(scratch.partials, count, conv::Partial());
      }
      RunTile(call, scratch, t, t == loaded, o, count);
      loaded = t;
      if (call.sink.reducing() &&
          ((t + 1) % chunk == 0 || t + 1 == call.tiles())) {
        conv::KeepPartials(
            scratch.partials, count,
            call.sink.partials + 2 * (t / chunk * pass.outputs + o));
      }
    }
    o += count;
  }
}

// About the cycles that a thread of `threads` takes, where it has `share` of
// the outputs, and `tiles` tiles.
double Cost(const SparsePass& pass, double kept, double share, double tiles) {
  const double unpack = pass.forward ? 4.0 : 8.0;
  const double blocks =
      std::max(1.0, share * std::max(kept / static_cast<double>(pass.records),
                                     static_cast<double>(pass.outputs) /
                                         static_cast<double>(pass.block)));
  const auto lines =
      static_cast<double>(pass.channels * pass.tile.lines * pass.tile.planes);
  const double refills = blocks < 1.5 && pass.chunks() == 1 ? 1.0 : blocks;
  return share * kept * unpack +
         tiles * (refills * lines * 6.0 +
                  share * kept * 1.4 * static_cast<double>(pass.tile.height));
}

SparseBuild ActiveBuild() {
  return {THIMBLE_DOT_TABLE(FillSparseTile).Get(),
          THIMBLE_DOT_TABLE(UnpackRecords).Get(),
          THIMBLE_DOT_TABLE(BeginTranspose).Get(),
          THIMBLE_DOT_TABLE(TransposeRecords).Get(),
          THIMBLE_DOT_TABLE(SumSparse).Get(),
          THIMBLE_DOT_TABLE(JoinSparsePhases).Get()};
}

void RunShares(const SparseCall& call, const KernelContext& context) {
  const SparsePass& pass = call.pass;
  const int64_t threads = context.pool->threads();
  const int64_t unit = call.sink.reducing() ? call.chunk_tiles() : 1;
  const int64_t units = conv::CeilDiv(call.tiles(), unit);
  const auto kept = static_cast<double>(call.weights.pattern.values());
  const auto tiles = static_cast<double>(call.tiles());
  const double of_tiles = std::min(
      tiles, static_cast<double>(conv::CeilDiv(units, threads) * unit));
  // A block of weights is one thread's, whichever way it is read.
  const WeightBlock& block = call.weights.pattern.block;
  const int64_t group = pass.forward ? block.outputs : block.inputs;
  const int64_t groups = pass.outputs / group;
  const double of_outputs =
      static_cast<double>(conv::CeilDiv(groups, threads)) /
      static_cast<double>(groups);
  if (Cost(pass, kept, 1.0, of_tiles) <= Cost(pass, kept, of_outputs, tiles)) {
    context.pool->ParallelFor(units, [&](int64_t begin, int64_t end,
                                         int thread) {
      RunShare(call, {begin * unit, std::min(end * unit, call.tiles())},
               {0, pass.outputs}, {pass, context.PerThread<std::byte>(thread)});
    });
  } else {
    context.pool->ParallelFor(
        groups, [&](int64_t begin, int64_t end, int thread) {
          RunShare(call, {0, call.tiles()}, {begin * group, end * group},
                   {pass, context.PerThread<std::byte>(thread)});
        });
  }
}

}  // namespace

bool RunSparse(const Conv2dShape& shape, bool forward, int64_t images,
               const Conv2dInput& input, const ConstTensor& weights,
               const conv::Sink& sink, RowWriter write_row,
               const KernelContext& context) {
  if (!weights.is_sparse() || input.x.dtype() != DType::kBF16 ||
      weights.dtype() != DType::kBF16 || sink.to.dtype() != DType::kBF16) {
    return false;
  }
  SparsePass pass;
  if (!MakeSparsePass(shape, forward, pass)) return false;
  const SparseCall call{
      pass,   ActiveBuild(),
      input,  {*weights.pattern(), weights.values().halves(DType::kBF16)},
      sink,   write_row,
      images, !sink.residual.is_there() && !sink.x.is_there() && !sink.moments};
  RunShares(call, context);
  return true;
}

#else

bool RunSparse(const Conv2dShape&, bool, int64_t, const Conv2dInput&,
               const ConstTensor&, const conv::Sink&, RowWriter,
               const KernelContext&) {
  return false;  // no other CPU has dot products
}

#endif

}  // namespace thimble::kernels::dot
