// SPDX-License-Identifier: Apache-2.0
//
// The forward pass and the gradient of the input over a batch, with sparse
// weights: who works on what. Included once per SIMD target, after
// <hwy/highway.h>; hence no `#pragma once`.
#if defined(THIMBLE_KERNELS_SPARSE_SUM_ROWS_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef THIMBLE_KERNELS_SPARSE_SUM_ROWS_INL_H_
#undef THIMBLE_KERNELS_SPARSE_SUM_ROWS_INL_H_
#else
#define THIMBLE_KERNELS_SPARSE_SUM_ROWS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "kernels/conv/operand.h"
#include "kernels/sparse/calls.h"
#include "kernels/sparse/unpack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

// Threads share rows, each of which then unpacks its own, as long as there are
// enough of them, and else images too.
struct Split {
  int64_t row_parts;
  int64_t image_parts;
};
HWY_INLINE Split SplitOver(int64_t row_units, int64_t steps, int64_t threads) {
  constexpr int64_t kLeastRows = 16;
  int64_t parts = HWY_MAX(
      int64_t{1},
      HWY_MIN(threads, HWY_MIN(row_units, (row_units + 7) / kLeastRows)));
  while (threads % parts != 0) --parts;
  return {parts, HWY_MAX(int64_t{1}, HWY_MIN(steps, threads / parts))};
}

// All tiles and chunks of a few images. What a Way is: see SumRows.
template <class Way>
void SumImages(Way& way, Unpacker& unpacker, const sparse::RowSpan& span,
               int64_t image, int64_t images) {
  const int64_t chunks = way.plan().chunks();
  for (int64_t tile = 0; tile < way.tiles(); ++tile) {
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      if (!span.all_chunks) unpacker.TakeChunk(span, chunk);
      way.Load(image, images, tile, chunk);
      for (int64_t row = 0; row < span.rows; row += way.plan().side) {
        way.SumRow(unpacker, span, chunk, row);
      }
    }
  }
}

// Rows [first, last) of images [begin, end).
template <class Way>
void SumPart(const sparse::SumCall& call, Way& way, int64_t first, int64_t last,
             int64_t begin, int64_t end) {
  const bool reducing = call.sink.reducing();
  const int64_t chunk_images = conv::ChunkImages(call.pixels);
  Unpacker unpacker(way.plan(), *call.weights.pattern(), call.weights.values(),
                    way.entries());
  unpacker.Begin(first);
  for (int64_t row = first; row < last;) {
    const sparse::RowSpan span = unpacker.Take(row, last);
    for (int64_t image = begin; image < end;) {
      const int64_t chunk_end =
          reducing ? HWY_MIN(end, image + chunk_images) : end;
      const int64_t chunk = image / chunk_images;
      for (int64_t r = 0; reducing && r < span.rows; ++r) {
        way.partials()[r] = conv::Partial();
      }
      for (; image < chunk_end; image += way.step()) {
        SumImages(way, unpacker, span, image,
                  HWY_MIN(way.step(), chunk_end - image));
      }
      image = chunk_end;
      if (reducing) {
        conv::KeepPartials(
            way.partials(), span.rows,
            call.sink.partials + 2 * (chunk * way.plan().sides.rows + row));
      }
    }
    unpacker.Leave(span);
    row += span.rows;
  }
}

// A Way has a plan(), a thread's scratch: entries() and partials(), images that
// it takes at once: step(), and tiles() of them. Load brings a chunk of a tile
// into scratch, SumRow sums up one of the span's rows, or a pair of them, and
// writes it if the chunk is the last one.
template <class Way, class Pass, class Call>
void SumRows(const Pass& pass, const Call& call, const KernelContext& context) {
  const sparse::Sides& sides = pass.plan.sides;
  // A step's images are never parted.
  const int64_t step =
      call.sink.reducing() ? conv::ChunkImages(call.pixels) : Way::StepOf(pass);
  const int64_t steps = conv::CeilDiv(call.images, step);
  const int64_t units = sides.rows / sides.row_unit;
  const Split split = SplitOver(units, steps, context.pool->threads());
  if (call.images == 0) return;
  context.pool->ParallelFor(
      split.row_parts * split.image_parts,
      [&](int64_t begin, int64_t end, int thread) {
        for (int64_t part = begin; part < end; ++part) {
          const int64_t r = part / split.image_parts;
          const int64_t i = part % split.image_parts;
          Way way(pass, call, context.PerThread<float>(thread));
          SumPart(
              call, way, units * r / split.row_parts * sides.row_unit,
              units * (r + 1) / split.row_parts * sides.row_unit,
              steps * i / split.image_parts * step,
              HWY_MIN(call.images, steps * (i + 1) / split.image_parts * step));
        }
      });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
