// SPDX-License-Identifier: Apache-2.0
//
// Linear maps with sparse weights (linear_pass.h). Included once per SIMD
// target, after <hwy/highway.h>; hence no `#pragma once`.
#if defined(THIMBLE_KERNELS_SPARSE_LINEAR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef THIMBLE_KERNELS_SPARSE_LINEAR_INL_H_
#undef THIMBLE_KERNELS_SPARSE_LINEAR_INL_H_
#else
#define THIMBLE_KERNELS_SPARSE_LINEAR_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "kernels/sparse/linear_pass.h"
#include "kernels/sparse/products-inl.h"
#include "kernels/sparse/sum_rows-inl.h"
#include "kernels/sparse/weight_rows-inl.h"
#include "kernels/stage-inl.h"
#include "kernels/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

// Columns [first, first + n) of `rows` rows, from row `row` on, of a matrix:
// to[column][row], rows kLinearRows apart.
void LoadColumns(const ConstTensor& from, int64_t columns, int64_t row,
                 int64_t rows, int64_t first, int64_t n, float* line,
                 float* to) {
  for (int64_t r = 0; r < rows; r += sparse::kLinearLine) {
    const int64_t lines = HWY_MIN(sparse::kLinearLine, rows - r);
    const int64_t at = (row + r) * columns + first;
    const float* source = line;
    int64_t stride = n;
    if (from.dtype() == DType::kF32) {
      source = from.f32() + at;
      stride = columns;
    } else {
      for (int64_t i = 0; i < lines; ++i) {
        Widen(from, at + i * columns, n, line + i * n);
      }
    }
    Transpose(static_cast<size_t>(lines), static_cast<size_t>(n), source,
              static_cast<size_t>(stride), to + r,
              static_cast<size_t>(sparse::kLinearRows));
  }
}

// A way of SumRows, in which images are blocks of rows.
class LinearWay {
 public:
  LinearWay(const sparse::LinearPass& pass, const sparse::LinearSumCall& call,
            float* scratch)
      : pass_(pass), call_(call) {
    tile_ = scratch + pass.plan.Floats();
    sums_ = tile_ + pass.tile_floats();
    line_ = sums_ + pass.sum_floats();
    entries_ = sparse::EntryWork(pass.plan, scratch, tile_);
    entries_.places[0] = {0, 0};
  }

  static int64_t StepOf(const sparse::LinearPass&) { return 1; }
  int64_t step() const { return 1; }
  int64_t tiles() const { return 1; }
  const sparse::EntryPlan& plan() const { return pass_.plan; }
  const sparse::EntryWork& entries() const { return entries_; }
  conv::Partial* partials() const { return nullptr; }

  void Load(int64_t block, int64_t, int64_t, int64_t chunk) {
    first_ = block * sparse::kLinearRows;
    rows_ = HWY_MIN(sparse::kLinearRows, call_.rows - first_);
    const int64_t channels = plan().sides.channels;
    const int64_t channel = chunk * plan().chunk;
    LoadColumns(call_.input.x, channels, first_, rows_, channel,
                HWY_MIN(plan().chunk, channels - channel), line_, tile_);
  }

  void SumRow(const Unpacker& unpacker, const sparse::RowSpan& span,
              int64_t chunk, int64_t row) {
    SumPositions(unpacker.RunOf(span, chunk, row, 0), chunk > 0, rows_, tile_,
                 sums_ + row * sparse::kLinearRows);
    if (chunk + 1 == plan().chunks() && row + 1 == span.rows) Write(span);
  }

 private:
  // The sums of all of the span's rows.
  void Write(const sparse::RowSpan& span) const {
    const Tensor& to = call_.sink.to;
    const ConstTensor& addend = call_.sink.residual;
    for (int64_t r = 0; r < rows_; r += sparse::kLinearLine) {
      const int64_t lines = HWY_MIN(sparse::kLinearLine, rows_ - r);
      Transpose(static_cast<size_t>(span.rows), static_cast<size_t>(lines),
                sums_ + r, static_cast<size_t>(sparse::kLinearRows), line_,
                static_cast<size_t>(span.rows));
      for (int64_t i = 0; i < lines; ++i) {
        const int64_t at = (first_ + r + i) * plan().sides.rows + span.first;
        StoreValues({to, addend, nullptr}, at, span.rows,
                    line_ + i * span.rows);
      }
    }
  }

  const sparse::LinearPass& pass_;
  const sparse::LinearSumCall& call_;
  float* tile_;
  float* sums_;
  float* line_;
  sparse::EntryWork entries_;
  int64_t first_ = 0;  // of the rows in the tile
  int64_t rows_ = 0;
};

// A way of SumWeights.
class LinearWeightWay {
 public:
  LinearWeightWay(const sparse::LinearWeightPass& pass,
                  const sparse::LinearWeightCall& call, float* scratch)
      : pass_(pass), call_(call) {
    tile_ = scratch + pass.plan.Floats();
    grad_ = tile_ + pass.tile_floats();
    line_ = grad_ + sparse::kLinearOutputs * sparse::kLinearRows;
    work_ = sparse::WeightWork(pass.plan, scratch, tile_);
    work_.places[0] = {0, 0};
  }

  int64_t step() const { return 1; }
  int64_t tiles() const { return 1; }
  const sparse::WeightPlan& plan() const { return pass_.plan; }
  const sparse::WeightWork& work() const { return work_; }

  void Load(int64_t block, int64_t, int64_t, int64_t chunk) {
    first_ = block * sparse::kLinearRows;
    rows_ = HWY_MIN(sparse::kLinearRows, call_.rows - first_);
    outputs_ = -1;
    const int64_t channels = plan().sides.channels;
    const int64_t channel = chunk * plan().chunk;
    LoadColumns(call_.x.x, channels, first_, rows_, channel,
                HWY_MIN(plan().chunk, channels - channel), line_, tile_);
  }

  void SumRow(const WeightEntries& entries, int64_t chunk, int64_t row) {
    const WeightEntries::Run run = entries.RunOf(chunk, row, 0);
    if (run.first == run.last) return;
    const int64_t output = entries.OutputOf(row);
    const int64_t outputs = output / sparse::kLinearOutputs;
    if (outputs != outputs_) LoadGrad(outputs);
    const float* grad =
        grad_ + output % sparse::kLinearOutputs * sparse::kLinearRows;
    AddRunProducts(tile_, grad, rows_, entries.offsets() + run.first,
                   entries.sums() + run.first, run.last - run.first);
  }

 private:
  void LoadGrad(int64_t outputs) {
    const int64_t all = plan().sides.rows;
    const int64_t first = outputs * sparse::kLinearOutputs;
    LoadColumns(call_.grad_y, all, first_, rows_, first,
                HWY_MIN(sparse::kLinearOutputs, all - first), line_, grad_);
    outputs_ = outputs;
  }

  const sparse::LinearWeightPass& pass_;
  const sparse::LinearWeightCall& call_;
  float* tile_;
  float* grad_;
  float* line_;
  sparse::WeightWork work_;
  int64_t first_ = 0;  // of the rows in the tile
  int64_t rows_ = 0;
  int64_t outputs_ = -1;  // a block of them is in grad_
};

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
