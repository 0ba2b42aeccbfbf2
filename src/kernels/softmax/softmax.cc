// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/softmax/softmax.cc"
#include "kernels/softmax/softmax.h"

#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "base/check.h"
#include "kernels/elements-inl.h"
#include "kernels/softmax_row-inl.h"
#include "kernels/stage-inl.h"
#include "kernels/target.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

using Wide = hn::Repartition<double, D>;
using WideV = hn::Vec<Wide>;
using Half = hn::Half<D>;

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
  size_t i = 0;
  // Several at a time: a function is a long chain of instructions.
  constexpr size_t kVectors = 4;
  for (; i + kVectors * lanes <= n; i += kVectors * lanes) {
    V e[kVectors];
    THIMBLE_UNROLL
    for (size_t k = 0; k < kVectors; ++k) {
      e[k] = ShiftedExp(hn::LoadU(d, x + i + k * lanes), top);
    }
    THIMBLE_UNROLL
    for (size_t k = 0; k < kVectors; ++k) {
      visit(i + k * lanes, e[k]);
      sum = AddWide(sum, e[k]);
    }
  }
  for (; i < n; i += lanes) {
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

// terms = exp(x − shift); their sum. In place on x.
double StoreExp(size_t n, const float* x, float shift, float* terms) {
  const D d;
  return SumOfExp(n, x, shift, [=](size_t i, V e) HWY_ATTR {
    const size_t left = n - i;
    if (left >= hn::Lanes(d)) {
      hn::StoreU(e, d, terms + i);
    } else {
      StoreFirst(e, d, terms + i, left);
    }
  });
}

// ---- Rows of any float type: as a whole where they are f32, else in pieces.

constexpr int64_t kPiece = 512;

// Calls f(begin, count, x, line) for pieces of the first n elements of a row: x
// are `count` of them from `begin` on as f32, and `line` has room for as many
// where they are stored otherwise. x may be the line.
template <typename F>
HWY_INLINE void ForPieces(size_t n, const ConstTensor& row, const F& f) {
  HWY_ALIGN float line[kPiece];
  const auto all = static_cast<int64_t>(n);
  const int64_t most = row.dtype() == DType::kF32 ? all : kPiece;
  for (int64_t i = 0; i < all; i += most) {
    const int64_t count = HWY_MIN(most, all - i);
    f(i, static_cast<size_t>(count), ReadPiece(row, i, count, line), line);
  }
}

HWY_INLINE float LargestOfRow(size_t n, const ConstTensor& row) {
  float largest = 0.0f;
  ForPieces(n, row,
            [&](int64_t begin, size_t count, const float* x, float*) HWY_ATTR {
              const float here = LargestOf(count, x);
              largest = begin == 0 ? here : std::max(largest, here);
            });
  return largest;
}

// −log softmax(x)[label] of one row, which is never negative: the largest logit
// adds exactly 1 to the sum.
double SoftmaxRowLoss(size_t classes, const ConstTensor& row, size_t label,
                      bool* correct) {
  const float largest = LargestOfRow(classes, row);
  double sum = 0.0;
  ForPieces(classes, row,
            [&](int64_t, size_t n, const float* x, float*) HWY_ATTR {
              sum += SumOfExp(n, x, largest, [](size_t, V) HWY_ATTR {});
            });
  float line = 0.0f;
  const float at_label = *ReadPiece(row, static_cast<int64_t>(label), 1, &line);
  // NaN fails the comparison.
  *correct = sum >= 1.0 && at_label == largest;
  if (*correct) {
    ForPieces(label, row,
              [&](int64_t, size_t n, const float* x, float*) HWY_ATTR {
                if (Contains(n, x, largest)) *correct = false;
              });
  }
  return std::log(sum) + (static_cast<double>(largest) - at_label);
}

// The exponentials of n classes become gradients. The label's lies at `label`
// if that is below n.
HWY_INLINE void ScaleTerms(size_t n, size_t label, double sum, float scale,
                           float loss_scale, float* terms) {
  const V factor = hn::Set(D(), static_cast<float>(scale / sum));
  const V last = hn::Set(D(), loss_scale);
  const float hot = label < n ? terms[label] : 0.0f;
  CopyRowAs(static_cast<int64_t>(n), terms, terms,
            [=](V e) HWY_ATTR { return hn::Mul(hn::Mul(e, factor), last); });
  if (label >= n) return;
  const double difference = static_cast<double>(hot) / sum - 1.0;
  terms[label] = static_cast<float>(difference * scale) * loss_scale;
}

// Exponentials are kept where the gradient is f32 and made twice where it is
// not: rounded ones are of no use. grad may be the row itself: a piece is read
// before it is written.
void SoftmaxRowGrad(size_t classes, const ConstTensor& row, size_t label,
                    float scale, float loss_scale, const Tensor& grad) {
  const float largest = LargestOfRow(classes, row);
  const bool keep = grad.dtype() == DType::kF32;
  double sum = 0.0;
  ForPieces(classes, row,
            [&](int64_t begin, size_t n, const float* x, float* line) HWY_ATTR {
              sum += StoreExp(n, x, largest, PieceToWrite(grad, begin, line));
            });
  ForPieces(classes, keep ? ConstTensor(grad) : row,
            [&](int64_t begin, size_t n, const float* x, float* line) HWY_ATTR {
              float* terms = PieceToWrite(grad, begin, line);
              if (!keep) StoreExp(n, x, largest, terms);
              ScaleTerms(n, label - static_cast<size_t>(begin), sum, scale,
                         loss_scale, terms);
              WritePiece(static_cast<int64_t>(n), terms, grad, begin);
            });
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
  const auto row_loss = THIMBLE_DISPATCH(SoftmaxRowLoss).Get();
  auto* losses = context.Shared<float>();
  // A sum of integers is the same in any order.
  std::atomic<int32_t> hits = 0;
  context.pool->ParallelFor(rows, [&](int64_t begin, int64_t end, int) {
    int32_t own_hits = 0;
    for (int64_t r = begin; r < end; ++r) {
      bool hit = false;
      losses[r] = static_cast<float>(
          row_loss(static_cast<size_t>(classes), logits.From(r * classes),
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
                             const int32_t* labels, float scale,
                             float loss_scale, Tensor grad,
                             const KernelContext& context) {
  TH_CHECK(logits.dtype() == grad.dtype());
  const auto row_grad = THIMBLE_DISPATCH(SoftmaxRowGrad).Get();
  context.pool->ParallelFor(rows, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      row_grad(static_cast<size_t>(classes), logits.From(r * classes),
               static_cast<size_t>(labels[r]), scale, loss_scale,
               grad.From(r * classes));
    }
  });
}

}  // namespace thimble::kernels
#endif  // HWY_ONCE
