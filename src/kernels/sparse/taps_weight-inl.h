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
#include "kernels/sparse/taps_pass.h"
#include "kernels/sparse/weight_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kFew = static_cast<int64_t>(kTogether);

// sums[i] += the product of grad and of what entry i reads at n positions, of
// four entries. An entry's sum does not depend on those beside it.
HWY_INLINE void AddProducts(const float* HWY_RESTRICT tile,
                            const float* HWY_RESTRICT grad, int64_t n,
                            const int32_t* offsets, float* sums) {
  const D d;
  const int64_t lanes = LaneCount();
  const float *x0 = tile + offsets[0], *x1 = tile + offsets[1];
  const float *x2 = tile + offsets[2], *x3 = tile + offsets[3];
  V acc[kTogether] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const V g = hn::LoadU(d, grad + i);
    acc[0] = hn::MulAdd(g, hn::LoadU(d, x0 + i), acc[0]);
    acc[1] = hn::MulAdd(g, hn::LoadU(d, x1 + i), acc[1]);
    acc[2] = hn::MulAdd(g, hn::LoadU(d, x2 + i), acc[2]);
    acc[3] = hn::MulAdd(g, hn::LoadU(d, x3 + i), acc[3]);
  }
  if (i < n) {  // past the end, the tile may hold anything
    const auto there = hn::FirstN(d, static_cast<size_t>(n - i));
    const V g = hn::IfThenElseZero(there, hn::LoadU(d, grad + i));
    const auto x = [&](const float* from) HWY_ATTR {
      return hn::IfThenElseZero(there, hn::LoadU(d, from + i));
    };
    acc[0] = hn::MulAdd(g, x(x0), acc[0]);
    acc[1] = hn::MulAdd(g, x(x1), acc[1]);
    acc[2] = hn::MulAdd(g, x(x2), acc[2]);
    acc[3] = hn::MulAdd(g, x(x3), acc[3]);
  }
  const Few few;
  hn::StoreU(hn::Add(hn::LoadU(few, sums), SumsOfLanes(acc)), few, sums);
}

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
    const int32_t* offsets = entries.offsets();
    float* sums = entries.sums();
    int64_t i = run.first;
    for (; i + kFew <= run.last; i += kFew) {
      AddProducts(tile_, grad_, n, offsets + i, sums + i);
    }
    if (i == run.last) return;
    int32_t last_offsets[kFew];
    float last_sums[kFew];
    for (int64_t k = 0; k < kFew; ++k) {
      const int64_t at = HWY_MIN(i + k, run.last - 1);
      last_offsets[k] = offsets[at];
      last_sums[k] = sums[at];
    }
    AddProducts(tile_, grad_, n, last_offsets, last_sums);
    for (int64_t k = 0; i + k < run.last; ++k) sums[i + k] = last_sums[k];
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
