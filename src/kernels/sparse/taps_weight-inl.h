// SPDX-License-Identifier: Apache-2.0
//
// The gradient of sparse weights on padded tiles (taps_pass.h). Included once
// per SIMD target, after <hwy/highway.h>; hence no `#pragma once`.
#if defined(THIMBLE_KERNELS_SPARSE_TAPS_WEIGHT_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef THIMBLE_KERNELS_SPARSE_TAPS_WEIGHT_INL_H_
#undef THIMBLE_KERNELS_SPARSE_TAPS_WEIGHT_INL_H_
#else
#define THIMBLE_KERNELS_SPARSE_TAPS_WEIGHT_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "kernels/conv/rows-inl.h"
#include "kernels/conv/tile-inl.h"
#include "kernels/sparse/products-inl.h"
#include "kernels/sparse/taps_pass.h"
#include "kernels/sparse/weight_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

// The way of any shape (SumWeights).
class TapsWeightWay {
 public:
  TapsWeightWay(const sparse::TapsWeightPass& pass,
                const sparse::WeightCall& call, float* scratch)
      : pass_(pass), tile_shape_(pass.tile), call_(call) {
    tile_ = scratch + pass.plan.Floats();
    grad_ = tile_ + pass.tile_floats();
    row_ = grad_ + pass.tile.positions();
    work_ = sparse::WeightWork(pass.plan, scratch, tile_);
    const Conv2dShape& s = pass.shape;
    for (int64_t tap = 0; tap < pass.plan.sides.taps; ++tap) {
      work_.places[tap] = {
          static_cast<int32_t>(conv::ForwardOffset(
              tile_shape_, tap / s.kernel_w, tap % s.kernel_w)),
          0};
    }
  }

  int64_t step() const { return 1; }
  int64_t tiles() const { return tile_shape_.blocks(); }
  const sparse::WeightPlan& plan() const { return pass_.plan; }
  const sparse::WeightWork& work() const { return work_; }

  void Load(int64_t image, int64_t, int64_t tile, int64_t chunk) {
    image_ = image;
    first_row_ = tile * tile_shape_.block_rows;
    rows_ = HWY_MIN(tile_shape_.rows - first_row_, tile_shape_.block_rows);
    const int64_t all = pass_.shape.in_channels;
    const int64_t channel = chunk * plan().chunk;
    LoadTile(tile_shape_, call_.x, image, all, channel,
             HWY_MIN(plan().chunk, all - channel), first_row_, rows_, row_,
             tile_);
  }

  void SumRow(const WeightEntries& entries, int64_t chunk, int64_t row) {
    const WeightEntries::Run run = entries.RunOf(chunk, row, 0);
    if (run.first == run.last) return;
    LoadGrad(entries.OutputOf(row));
    const int64_t n = (rows_ - 1) * tile_shape_.pitch + tile_shape_.cols;
    AddRunProducts(tile_, grad_, n, entries.offsets() + run.first,
                   entries.sums() + run.first, run.last - run.first);
  }

 private:
  // The tile's rows of one output, as positions: zeros between rows.
  void LoadGrad(int64_t output) const {
    const conv::Tile& tile = tile_shape_;
    const Conv2dInput input{.x = call_.grad_y};
    const int64_t plane = image_ * pass_.shape.out_channels + output;
    int64_t from = (plane * tile.rows + first_row_) * tile.cols;
    float* to = grad_;
    for (int64_t r = 0; r < rows_; ++r) {
      ReadRow(input, 0, from, tile.cols, to);
      if (r + 1 < rows_) ZeroRow(tile.pitch - tile.cols, to + tile.cols);
      from += tile.cols;
      to += tile.pitch;
    }
  }

  const sparse::TapsWeightPass& pass_;
  const conv::Tile& tile_shape_;
  const sparse::WeightCall& call_;
  float* tile_;
  float* grad_;
  float* row_;
  sparse::WeightWork work_;
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
