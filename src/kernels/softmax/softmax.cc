// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/softmax/softmax.cc"
#include "kernels/softmax/softmax.h"

#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <atomic>
#include <cmath>
#include <limits>

#include "hwy/contrib/math/math-inl.h"
#include "kernels/simd-inl.h"
#include "kernels/target.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
using Wide = hn::Repartition<double, D>;
using WideV = hn::Vec<Wide>;
using Half = hn::Half<D>;

// What the lanes past the row hold: they lose every maximum and add exp = 0.
HWY_INLINE V LoadLogits(const float* x, size_t n) {
  const D d;
  if (n >= hn::Lanes(d)) return hn::LoadU(d, x);
  return hn::IfThenElse(hn::FirstN(d, n), LoadFirst(d, x, n),
                        hn::Set(d, -std::numeric_limits<float>::infinity()));
}

HWY_INLINE float LargestOf(size_t n, const float* x) {
  constexpr size_t kChains = 4;
  const D d;
  const size_t lanes = hn::Lanes(d);
  V best = LoadLogits(x, n);
  size_t i = lanes;
  if (n >= 2 * kChains * lanes) {
    V chains[kChains] = {best, best, best, best};
    for (; i + kChains * lanes <= n; i += kChains * lanes) {
      THIMBLE_UNROLL
      for (size_t k = 0; k < kChains; ++k) {
        chains[k] = hn::Max(chains[k], hn::LoadU(d, x + i + k * lanes));
      }
    }
    best =
        hn::Max(hn::Max(chains[0], chains[1]), hn::Max(chains[2], chains[3]));
  }
  for (; i < n; i += lanes) best = hn::Max(best, LoadLogits(x + i, n - i));
  return hn::GetLane(hn::MaxOfLanes(d, best));
}

// exp(x − shift) for x ≤ shift. Highway's Exp turns a NaN into 0; a diverged
// run must show, so it is put back. It comes from a NaN logit in its own lane,
// whatever Max made of it, or from inf − inf.
HWY_INLINE V ShiftedExp(V x, V shift) {
  const V below = hn::Sub(x, shift);
  return hn::IfThenElse(hn::IsNaN(below), below, hn::Exp(D(), below));
}

HWY_INLINE WideV AddWide(WideV sum, V v) {
  const Wide dw;
  const WideV lower = hn::PromoteTo(dw, hn::LowerHalf(Half(), v));
  const WideV upper = hn::PromoteTo(dw, hn::UpperHalf(Half(), v));
  return hn::Add(sum, hn::Add(lower, upper));
}

// Σ exp(x − shift), with each term also handed to visit(position, term).
template <typename F>
HWY_INLINE double SumOfExp(size_t n, const float* x, float shift,
                           const F& visit) {
  const D d;
  const Wide dw;
  const size_t lanes = hn::Lanes(d);
  const V top = hn::Set(d, shift);
  WideV sum = hn::Zero(dw);
  for (size_t i = 0; i < n; i += lanes) {
    const V e = ShiftedExp(LoadLogits(x + i, n - i), top);
    visit(i, e);
    sum = AddWide(sum, e);
  }
  return hn::GetLane(hn::SumOfLanes(dw, sum));
}

// Whether value is among the first n of x.
HWY_INLINE bool Contains(size_t n, const float* x, float value) {
  const D d;
  const size_t lanes = hn::Lanes(d);
  const V wanted = hn::Set(d, value);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    if (!hn::AllFalse(d, hn::Eq(hn::LoadU(d, x + i), wanted))) return true;
  }
  for (; i < n; ++i) {
    if (x[i] == value) return true;
  }
  return false;
}

// −log softmax(x)[label] of one row, which is never negative: the largest logit
// adds exactly 1 to the sum.
double SoftmaxRowLoss(size_t classes, const float* x, size_t label,
                      bool* correct) {
  const float largest = LargestOf(classes, x);
  const double sum = SumOfExp(classes, x, largest, [](size_t, V) HWY_ATTR {});
  // NaN fails the comparison.
  *correct = sum >= 1.0 && x[label] == largest && !Contains(label, x, largest);
  return std::log(sum) + (static_cast<double>(largest) - x[label]);
}

void SoftmaxRowGrad(size_t classes, const float* x, size_t label, float scale,
                    float* grad) {
  const D d;
  const size_t lanes = hn::Lanes(d);
  const float largest = LargestOf(classes, x);
  // grad may be x: a position is read before it is written.
  const double sum = SumOfExp(classes, x, largest, [=](size_t i, V e) HWY_ATTR {
    const size_t left = classes - i;
    if (left >= lanes) {
      hn::StoreU(e, d, grad + i);
    } else {
      StoreFirst(e, d, grad + i, left);
    }
  });
  const double at_label = static_cast<double>(grad[label]) / sum - 1.0;
  const V factor = hn::Set(d, static_cast<float>(scale / sum));
  size_t i = 0;
  for (; i + lanes <= classes; i += lanes) {
    hn::StoreU(hn::Mul(hn::LoadU(d, grad + i), factor), d, grad + i);
  }
  if (i < classes) {
    const V e = LoadFirst(d, grad + i, classes - i);
    StoreFirst(hn::Mul(e, factor), d, grad + i, classes - i);
  }
  grad[label] = static_cast<float>(at_label * scale);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace thimble::kernels {

Workspace SoftmaxCrossEntropyWorkspace(int64_t rows) {
  return {.per_thread = 0, .shared = static_cast<size_t>(rows) * sizeof(float)};
}

void SoftmaxCrossEntropy(int64_t rows, int64_t classes, ConstTensor logits,
                         const int32_t* labels, float* loss, int32_t* correct,
                         const KernelContext& context) {
  const float* logits_f32 = logits.f32();
  const auto row_loss = THIMBLE_DISPATCH(SoftmaxRowLoss).Get();
  auto* losses = context.Shared<float>();
  // A sum of integers is the same in any order.
  std::atomic<int32_t> hits = 0;
  context.pool->ParallelFor(rows, [&](int64_t begin, int64_t end, int) {
    int32_t own_hits = 0;
    for (int64_t r = begin; r < end; ++r) {
      bool hit = false;
      losses[r] = static_cast<float>(
          row_loss(static_cast<size_t>(classes), logits_f32 + r * classes,
                   static_cast<size_t>(labels[r]), &hit));
      own_hits += hit ? 1 : 0;
    }
    hits.fetch_add(own_hits, std::memory_order_relaxed);
  });
  double total = 0.0;
  for (int64_t r = 0; r < rows; ++r) total += static_cast<double>(losses[r]);
  *loss = static_cast<float>(total / static_cast<double>(rows));
  *correct = hits.load(std::memory_order_relaxed);
}

void SoftmaxCrossEntropyGrad(int64_t rows, int64_t classes, ConstTensor logits,
                             const int32_t* labels, float scale, Tensor grad,
                             const KernelContext& context) {
  const float* logits_f32 = logits.f32();
  float* grad_f32 = grad.f32();
  const auto row_grad = THIMBLE_DISPATCH(SoftmaxRowGrad).Get();
  context.pool->ParallelFor(rows, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      row_grad(static_cast<size_t>(classes), logits_f32 + r * classes,
               static_cast<size_t>(labels[r]), scale, grad_f32 + r * classes);
    }
  });
}

}  // namespace thimble::kernels
#endif  // HWY_ONCE
