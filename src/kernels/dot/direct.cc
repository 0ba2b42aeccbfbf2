// SPDX-License-Identifier: Apache-2.0
#include "kernels/dot/direct.h"

#include <algorithm>
#include <cstring>

#include "kernels/dot/dot_form.h"
#include "kernels/dot/flush.h"

#if defined(__x86_64__)
#define THIMBLE_DOT_INCLUDE "kernels/dot/direct-inl.h"
#include "kernels/dot/foreach_build.h"
#endif

namespace thimble::kernels::dot {

#if defined(__x86_64__)
namespace {

// One build of direct-inl.h.
struct DirectBuild {
  decltype(&dot_native::LoadDirectTile) load_tile;
  decltype(&dot_native::PackDirectWeights) pack_weights;
  decltype(&dot_native::SumDirect) sum;
  decltype(&dot_native::InterleaveRow) interleave_row;
  decltype(&dot_native::StoreJoinedRows) store_joined_rows;
  decltype(&dot_native::SumJoined) sum_joined;
};

// What does not change during a call.
struct DirectCall {
  const DirectPass& pass;
  DirectBuild build;
  const Conv2dInput& input;
  const uint16_t* weights;
  const conv::Sink& sink;
  RowWriter write_row;
};

// A thread's scratch, and the tile that it works on: rows [first_row, first_row
// + rows) of positions of `images` images from `image` on.
struct DirectWork {
  DirectWork(const DirectPass& pass, uint32_t* scratch)
      : taps(reinterpret_cast<DirectTap*>(scratch)),
        tile(scratch + pass.tap_words()),
        weights(tile + pass.tile_words()),
        sums(reinterpret_cast<float*>(weights + pass.weight_words())),
        row(sums + pass.sum_words()),
        partials(reinterpret_cast<conv::Partial*>(row + pass.row_words())) {}

  DirectTap* taps;
  uint32_t* tile;
  uint32_t* weights;
  float* sums;  // [phase][output of the block][image][position]
  float* row;
  conv::Partial* partials;  // of all outputs
  int64_t image = 0;
  int64_t images = 0;
  int64_t first_row = 0;
  int64_t rows = 0;
};

// Rows of output `o` of the block, in image `i` of the tile, from its phases.
// Returns how many there are.
int64_t JoinPhases(const DirectCall& call, const DirectWork& work, int64_t o,
                   int64_t i) {
  const DirectPass& pass = call.pass;
  const int64_t per_image = pass.image_vectors(work.rows) * kVector;
  const int64_t stride = work.images * per_image;
  const float* sums = work.sums + o * stride + i * per_image;
  const int64_t count =
      std::min(2 * work.rows, pass.out_height - 2 * work.first_row);
  for (int64_t r = 0; r < count; ++r) {
    const float* even =
        sums + r % 2 * 2 * pass.block * stride + r / 2 * pass.planes.cols;
    call.build.interleave_row(even, even + pass.block * stride,
                              pass.planes.cols, work.row + r * pass.out_width);
  }
  return count;
}

// Writes outputs [first, first + outputs) from the sums.
void WriteOutputs(const DirectCall& call, const DirectWork& work, int64_t first,
                  int64_t outputs) {
  const DirectPass& pass = call.pass;
  const int64_t per_image = pass.image_vectors(work.rows) * kVector;
  const int64_t pixels = pass.out_height * pass.out_width;
  for (int64_t o = 0; o < outputs; ++o) {
    for (int64_t i = 0; i < work.images; ++i) {
      float* values = work.sums + (o * work.images + i) * per_image;
      int64_t rows = work.rows;
      if (pass.phases > 1) {
        rows = JoinPhases(call, work, o, i);
        values = work.row;
      }
      const int64_t plane = (work.image + i) * pass.outputs + first + o;
      call.write_row(
          call.sink, first + o,
          plane * pixels + pass.phases * work.first_row * pass.out_width,
          rows * pass.out_width, values, work.partials + first + o);
    }
  }
}

// The element of the result at which a channel's rows of the tile begin.
int64_t ResultAt(const DirectPass& pass, const DirectWork& work, int64_t image,
                 int64_t output) {
  const int64_t plane = image * pass.outputs + output;
  return (plane * pass.out_height + pass.phases * work.first_row) *
         pass.out_width;
}

// Sums of outputs [first, first + outputs), all phases of them.
void SumPhases(const DirectCall& call, const DirectWork& work,
               int64_t outputs) {
  const DirectPass& pass = call.pass;
  const int64_t per_image = pass.image_vectors(work.rows) * kVector;
  const int64_t stride = work.images * per_image;
  for (int64_t phase = 0; phase < pass.phases * pass.phases; ++phase) {
    const int64_t taps =
        ListTaps(pass, phase / pass.phases, phase % pass.phases, work.taps);
    call.build.sum(
        pass, work.taps, taps, work.images, work.rows, outputs, work.tile,
        work.weights,
        {work.sums + phase * pass.block * stride, nullptr, stride, per_image});
  }
}

// Rows of parity `a` of plain results.
void StoreParity(const DirectCall& call, const DirectWork& work, int64_t a,
                 int64_t first, int64_t outputs) {
  const DirectPass& pass = call.pass;
  const int64_t per_image = pass.image_vectors(work.rows) * kVector;
  const int64_t stride = work.images * per_image;
  if (pass.JoinsPhases()) {
    const int64_t even = ListTaps(pass, a, 0, work.taps);
    const int64_t odd = ListTaps(pass, a, 1, work.taps + even);
    const int64_t pixels = pass.out_height * pass.out_width;
    call.build.sum_joined(
        pass, work.taps, {even, odd}, work.images, work.rows, outputs,
        work.tile, work.weights,
        {nullptr,
         call.sink.to.halves(DType::kBF16) +
             ResultAt(pass, work, work.image, first) + a * pass.out_width,
         pixels, pass.outputs * pixels});
    return;
  }
  const float* columns[2];
  for (int64_t b = 0; b < 2; ++b) {
    columns[b] = nullptr;  // no tap meets them
    const int64_t taps = ListTaps(pass, a, b, work.taps);
    if (taps == 0) continue;
    float* sums = work.sums + b * pass.block * stride;
    call.build.sum(pass, work.taps, taps, work.images, work.rows, outputs,
                   work.tile, work.weights, {sums, nullptr, stride, per_image});
    columns[b] = sums;
  }
  const int64_t rows =
      std::min(2 * work.rows, pass.out_height - 2 * work.first_row) - a;
  for (int64_t i = 0; i < outputs * work.images; ++i) {
    const int64_t output = i / work.images, image = i % work.images;
    const int64_t at = output * stride + image * per_image;
    call.build.store_joined_rows(
        pass, columns[0] == nullptr ? nullptr : columns[0] + at,
        columns[1] == nullptr ? nullptr : columns[1] + at, rows,
        call.sink.to.halves(DType::kBF16) +
            ResultAt(pass, work, work.image + image, first + output) +
            a * pass.out_width);
  }
}

// Outputs [first, first + outputs) of the tile.
void RunOutputs(const DirectCall& call, const DirectWork& work, int64_t first,
                int64_t outputs) {
  const DirectPass& pass = call.pass;
  const FlushDenormals flush;
  call.build.pack_weights(pass, call.weights, first, outputs, work.weights);
  if (!pass.plain) {
    SumPhases(call, work, outputs);
  } else if (pass.phases == 1) {
    const int64_t pixels = pass.out_height * pass.out_width;
    const int64_t taps = ListTaps(pass, 0, 0, work.taps);
    call.build.sum(pass, work.taps, taps, work.images, work.rows, outputs,
                   work.tile, work.weights,
                   {nullptr,
                    call.sink.to.halves(DType::kBF16) +
                        ResultAt(pass, work, work.image, first),
                    pixels, pass.outputs * pixels});
  } else {
    StoreParity(call, work, 0, first, outputs);
    StoreParity(call, work, 1, first, outputs);
  }
}

// Units of work: triples (group of images, rows of them, block of outputs).
struct DirectUnits {
  DirectUnits(const DirectPass& pass, int64_t all_images, bool reducing)
      : images(all_images),
        blocks(pass.blocks()),
        group_units(pass.planes.blocks() * pass.blocks()),
        count(conv::CeilDiv(all_images, pass.images) * group_units) {
    if (!reducing) return;
    const int64_t chunk = conv::ChunkImages(pass.out_height * pass.out_width);
    chunk_units = chunk / pass.images * group_units;
  }
  int64_t images;
  int64_t blocks;
  int64_t group_units;
  int64_t count;
  int64_t chunk_units = 1;  // that one thread works on
};

// The tile of unit `unit`.
void LoadTile(const DirectCall& call, const DirectUnits& units, int64_t unit,
              DirectWork& work) {
  const DirectPass& pass = call.pass;
  work.image = unit / units.group_units * pass.images;
  work.images = std::min(pass.images, units.images - work.image);
  work.first_row =
      unit % units.group_units / units.blocks * pass.planes.block_rows;
  work.rows =
      std::min(pass.planes.block_rows, pass.planes.rows - work.first_row);
  const FlushDenormals flush;
  call.build.load_tile(pass, call.input, work.image, work.images,
                       work.first_row, work.rows, work.tile);
}

// Units [first, last), which are whole chunks where the sink reduces.
void RunUnits(const DirectCall& call, const DirectUnits& units, int64_t first,
              int64_t last, DirectWork& work) {
  const DirectPass& pass = call.pass;
  for (int64_t unit = first; unit < last; ++unit) {
    if (call.sink.reducing() && unit % units.chunk_units == 0) {
      std::fill_n(work.partials, pass.outputs, conv::Partial());
    }
    if (unit == first || unit % units.blocks == 0) {
      LoadTile(call, units, unit, work);
    }
    const int64_t output = unit % units.blocks * pass.block;
    const int64_t outputs = std::min(pass.block, pass.outputs - output);
    RunOutputs(call, work, output, outputs);
    // Denormals of other tensors are as they are from here on.
    if (!pass.plain) WriteOutputs(call, work, output, outputs);
    if (call.sink.reducing() &&
        (unit + 1 == units.count || (unit + 1) % units.chunk_units == 0)) {
      conv::KeepPartials(
          work.partials, pass.outputs,
          call.sink.partials + 2 * (unit / units.chunk_units) * pass.outputs);
    }
  }
}

DirectBuild ActiveBuild() {
  return {THIMBLE_DOT_TABLE(LoadDirectTile).Get(),
          THIMBLE_DOT_TABLE(PackDirectWeights).Get(),
          THIMBLE_DOT_TABLE(SumDirect).Get(),
          THIMBLE_DOT_TABLE(InterleaveRow).Get(),
          THIMBLE_DOT_TABLE(StoreJoinedRows).Get(),
          THIMBLE_DOT_TABLE(SumJoined).Get()};
}

}  // namespace

// Threads share units, or, with sums over images, chunks of them.
bool RunDirect(const Conv2dShape& shape, bool forward, size_t bytes,
               int64_t images, const Conv2dInput& input,
               const ConstTensor& weights, const conv::Sink& sink,
               RowWriter write_row, const KernelContext& context) {
  if (input.x.dtype() != DType::kBF16 || weights.dtype() != DType::kBF16 ||
      sink.to.dtype() != DType::kBF16) {
    return false;
  }
  DirectPass pass;
  pass.plain = !sink.residual.is_there() && !sink.x.is_there() && !sink.moments;
  if (!MakeDirectPass(shape, forward, bytes, pass)) return false;
  const DirectCall call{pass,  ActiveBuild(),
                        input, weights.halves(DType::kBF16),
                        sink,  write_row};
  const DirectUnits units(pass, images, sink.reducing());
  context.pool->ParallelFor(
      conv::CeilDiv(units.count, units.chunk_units),
      [&](int64_t begin, int64_t end, int thread) {
        DirectWork work(pass, context.PerThread<uint32_t>(thread));
        RunUnits(call, units, begin * units.chunk_units,
                 std::min(end * units.chunk_units, units.count), work);
      });
  return true;
}

#else

bool RunDirect(const Conv2dShape&, bool, size_t, int64_t, const Conv2dInput&,
               const ConstTensor&, const conv::Sink&, RowWriter,
               const KernelContext&) {
  return false;  // no other CPU has dot products
}

#endif

}  // namespace thimble::kernels::dot
