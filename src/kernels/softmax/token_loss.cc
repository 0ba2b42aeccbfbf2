// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/softmax/token_loss.cc"
#include "kernels/softmax/token_loss.h"

#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <cmath>

#include "kernels/elements-inl.h"
#include "kernels/softmax/row_sums-inl.h"
#include "kernels/stage-inl.h"
#include "kernels/target.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

// Σ x.
HWY_INLINE double SumOf(size_t n, const float* x) {
  const D d;
  const Wide dw;
  const size_t lanes = hn::Lanes(d);
  WideV sum = hn::Zero(dw);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) sum = AddWide(sum, hn::LoadU(d, x + i));
  if (i < n) sum = AddWide(sum, LoadFirst(d, x + i, n - i));
  return hn::GetLane(hn::SumOfLanes(dw, sum));
}

HWY_INLINE bool IsFirstLargest(const float* x, size_t label, float largest) {
  if (x[label] != largest) return false;
  for (size_t i = 0; i < label; ++i) {
    if (x[i] == largest) return false;
  }
  return true;
}

// With s = log Σ exp, −log p(v) = s − x[v].
void RowLoss(size_t classes, const float* x, size_t label, float smoothing,
             float* loss, float* nll, int32_t* hit) {
  const float largest = LargestOf(classes, x);
  const double sum = SumOfExp(classes, x, largest, [](size_t, V) HWY_ATTR {});
  const double log_sum = std::log(sum) + static_cast<double>(largest);
  const double of_label = log_sum - static_cast<double>(x[label]);
  const double mean =
      smoothing == 0.0f
          ? 0.0
          : log_sum - SumOf(classes, x) / static_cast<double>(classes);
  const auto share = static_cast<double>(smoothing);
  *loss = static_cast<float>((1.0 - share) * of_label + share * mean);
  *nll = static_cast<float>(of_label);
  // NaN fails the comparison.
  *hit = sum >= 1.0 && IsFirstLargest(x, label, largest) ? 1 : 0;
}

void RowGrad(size_t classes, float* x, size_t label, float smoothing,
             float scale, float loss_scale, const Tensor& grad) {
  const float largest = LargestOf(classes, x);
  const double sum = StoreExp(classes, x, largest, x);
  const auto wide_scale = static_cast<double>(scale);
  const double others =
      static_cast<double>(smoothing) / static_cast<double>(classes);
  const auto of_label =
      static_cast<float>((static_cast<double>(x[label]) / sum -
                          (1.0 - static_cast<double>(smoothing)) - others) *
                         wide_scale);
  const V factor = hn::Set(D(), static_cast<float>(wide_scale / sum));
  const V less = hn::Set(D(), static_cast<float>(others * wide_scale));
  const V last = hn::Set(D(), loss_scale);
  CopyRowAs(static_cast<int64_t>(classes), x, x, [=](V e) HWY_ATTR {
    return hn::Mul(hn::MulSub(e, factor, less), last);
  });
  x[label] = of_label * loss_scale;
  WritePiece(static_cast<int64_t>(classes), x, grad, 0);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace thimble::kernels {

void TokenLoss(const TokenLossShape& shape, int64_t rows, const float* logits,
               const int32_t* labels, const TokenLosses& to,
               const KernelContext& context) {
  const auto row_loss = THIMBLE_DISPATCH(RowLoss).Get();
  const int64_t classes = shape.classes;
  context.pool->ParallelFor(rows, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      row_loss(static_cast<size_t>(classes), logits + r * classes,
               static_cast<size_t>(labels[r]), shape.smoothing, to.loss + r,
               to.nll + r, to.hit + r);
    }
  });
}

void TokenLossGrad(const TokenLossShape& shape, int64_t rows, float* logits,
                   const int32_t* labels, float scale, float loss_scale,
                   const Tensor& grad, const KernelContext& context) {
  const auto row_grad = THIMBLE_DISPATCH(RowGrad).Get();
  const int64_t classes = shape.classes;
  context.pool->ParallelFor(rows, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      row_grad(static_cast<size_t>(classes), logits + r * classes,
               static_cast<size_t>(labels[r]), shape.smoothing, scale,
               loss_scale, grad.From(r * classes));
    }
  });
}

}  // namespace thimble::kernels
#endif  // HWY_ONCE
