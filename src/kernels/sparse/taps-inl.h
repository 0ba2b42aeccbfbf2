// SPDX-License-Identifier: Apache-2.0
//
// Sums over the entries of sparse weights on padded tiles (taps_pass.h).
// Included once per SIMD target, after <hwy/highway.h>; hence no `#pragma
// once`.
#if defined(THIMBLE_KERNELS_SPARSE_TAPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef THIMBLE_KERNELS_SPARSE_TAPS_INL_H_
#undef THIMBLE_KERNELS_SPARSE_TAPS_INL_H_
#else
#define THIMBLE_KERNELS_SPARSE_TAPS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "kernels/conv/rows-inl.h"
#include "kernels/conv/tile-inl.h"
#include "kernels/sparse/products-inl.h"
#include "kernels/sparse/sum_rows-inl.h"
#include "kernels/sparse/taps_pass.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

// line[phases * i + b] = sums[b * stride + i], for one row of positions.
HWY_INLINE void JoinPhases(int64_t phases, const float* sums, int64_t stride,
                           int64_t cols, float* line) {
  for (int64_t b = 0; b < phases; ++b) {
    for (int64_t i = 0; i < cols; ++i) {
      line[phases * i + b] = sums[b * stride + i];
    }
  }
}

// The way of any shape (SumRows).
class TapsWay {
 public:
  TapsWay(const sparse::TapsPass& taps, const sparse::SumCall& call,
          float* scratch)
      : taps_(taps), pass_(taps.pass), call_(call) {
    tile_ = scratch + taps.plan.Floats();
    sums_ = tile_ + taps.tile_floats();
    line_ = sums_ + taps.sum_floats();
    row_ = line_ + pass_.line_floats();
    partials_ = reinterpret_cast<conv::Partial*>(row_ + pass_.row_floats());
    entries_ = sparse::EntryWork(taps.plan, scratch, tile_);
    sparse::ListPlaces(pass_, entries_.places);
  }

  static int64_t StepOf(const sparse::TapsPass&) { return 1; }
  int64_t step() const { return 1; }
  int64_t tiles() const { return pass_.tile.blocks(); }
  const sparse::EntryPlan& plan() const { return taps_.plan; }
  const sparse::EntryWork& entries() const { return entries_; }
  conv::Partial* partials() const { return partials_; }

  void Load(int64_t image, int64_t, int64_t tile, int64_t chunk) {
    image_ = image;
    first_row_ = tile * pass_.tile.block_rows;
    rows_ = HWY_MIN(pass_.tile.rows - first_row_, pass_.tile.block_rows);
    const int64_t channel = chunk * plan().chunk;
    LoadTile(pass_.tile, call_.input, image, pass_.channels, channel,
             HWY_MIN(plan().chunk, pass_.channels - channel), first_row_, rows_,
             row_, tile_);
  }

  void SumRow(const Unpacker& unpacker, const sparse::RowSpan& span,
              int64_t chunk, int64_t row) {
    float* sums = sums_ + row * taps_.row_sums();
    const int64_t positions = rows_ * pass_.tile.pitch;
    for (int64_t slot = 0; slot < plan().slots; ++slot) {
      SumPositions(unpacker.RunOf(span, chunk, row, slot), chunk > 0, positions,
                   tile_, sums + slot * pass_.tile.positions());
    }
    if (chunk + 1 < plan().chunks()) return;
    for (int64_t a = 0; a < pass_.phases; ++a) {
      Write(span.first + row, a, sums, partials_ + row);
    }
  }

 private:
  // Row phase a of one output.
  void Write(int64_t output, int64_t a, float* sums,
             conv::Partial* partial) const {
    const conv::Tile& tile = pass_.tile;
    const int64_t plane = image_ * pass_.outputs + output;
    const int64_t stride = tile.positions();
    for (int64_t r = 0; r < rows_; ++r) {
      const int64_t row = pass_.phases * (first_row_ + r) + a - pass_.shift;
      if (row < 0 || row >= pass_.out_height) continue;
      float* from = sums + a * pass_.phases * stride + r * tile.pitch;
      if (pass_.phases > 1) {
        JoinPhases(pass_.phases, from, stride, tile.cols, line_);
        from = line_ + pass_.shift;
      }
      WriteRow(call_.sink, output,
               (plane * pass_.out_height + row) * pass_.out_width,
               pass_.out_width, from, partial);
    }
  }

  const sparse::TapsPass& taps_;
  const conv::Pass& pass_;
  const sparse::SumCall& call_;
  float* tile_;
  float* sums_;  // [row][phase][position]
  float* line_;
  float* row_;
  conv::Partial* partials_;  // of the span's rows
  sparse::EntryWork entries_;
  // What the tile holds.
  int64_t image_ = 0;
  int64_t first_row_ = 0;
  int64_t rows_ = 0;
};

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
