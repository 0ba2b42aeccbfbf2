// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/dynamic_conv/dynamic_conv.cc"
#include "kernels/dynamic_conv/dynamic_conv.h"

#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <algorithm>

#include "kernels/dynamic_conv/blocks.h"
#include "kernels/elementwise/dropout-inl.h"
#include "kernels/row_products-inl.h"
#include "kernels/softmax_row-inl.h"
#include "kernels/stage-inl.h"
#include "kernels/target.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

// Calls f(begin, end, first, last) for blocks [begin, end) of at most `most` of
// the rows [from, to), each within one sentence, [first, last).
template <typename F>
HWY_INLINE void ForBlocks(const Sentences& sentences, int64_t from, int64_t to,
                          int64_t most, const F& f) {
  for (int64_t n = sentences.Of(from); from < to; ++n) {
    const int64_t end = HWY_MIN(sentences.end(n), to);
    for (; from < end; from += HWY_MIN(most, end - from)) {
      f(from, from + HWY_MIN(most, end - from), sentences.begin(n),
        sentences.end(n));
    }
  }
}

// The mask of rows from `row` on, where a block of them lies by itself.
void DropTaps(const DynamicConvShape& shape, DropoutMask mask, int64_t row,
              int64_t rows, float* taps) {
  if (mask.rate == 0.0f) return;
  constexpr auto kGroup = static_cast<int64_t>(kDropoutGroup);
  const int64_t groups = (shape.taps() + kGroup - 1) / kGroup;
  mask.first += row;
  DropoutGroups(0, rows * groups, shape.taps(), mask, F32(taps), F32(taps));
}

// Softmax of the logits of `rows` rows from `row` on.
void MakeTaps(const DynamicConvShape& shape, const ConstTensor& logits,
              int64_t row, int64_t rows, float* taps) {
  Widen(logits, row * shape.taps(), rows * shape.taps(), taps);
  const auto kernel = static_cast<size_t>(shape.kernel);
  for (int64_t i = 0; i < rows * shape.heads; ++i) {
    SoftmaxRow(kernel, taps + i * shape.kernel);
  }
}

// Rows [from, to) of y.
void ConvolveRows(const DynamicConvShape& shape, const Sentences& sentences,
                  const DropoutMask& mask, const ConstTensor& u,
                  const ConstTensor& logits, const Tensor& y, int64_t from,
                  int64_t to, float* taps) {
  const int64_t c = shape.features, width = shape.width();
  ForBlocks(
      sentences, from, to, kConvBlock,
      [&](int64_t begin, int64_t end, int64_t first, int64_t last) HWY_ATTR {
        MakeTaps(shape, logits, begin, end - begin, taps);
        DropTaps(shape, mask, begin, end - begin, taps);
        const int64_t low = HWY_MAX(first, begin - shape.before());
        const int64_t high = HWY_MIN(last, end + shape.behind());
        // Of the block's first row, the tap that takes row `low`.
        const int64_t tap = low - begin + shape.before();
        for (int64_t h = 0; h < shape.heads; ++h) {
          const WeightedSum sum = {.weights = taps + h * shape.kernel + tap,
                                   .row_step = shape.taps() - 1,
                                   .term_step = 1,
                                   .terms = high - low,
                                   .first = -tap,
                                   .end = shape.kernel - tap,
                                   .step = 1};
          SumRows(sum, {u, low * c + h * width, c}, end - begin, width,
                  {y, begin * c + h * width, c});
        }
      });
}

// Rows [from, to) of grad_u.
void GradInputRows(const DynamicConvShape& shape, const Sentences& sentences,
                   const DropoutMask& mask, const ConstTensor& logits,
                   const ConstTensor& grad_y, const Tensor& grad_u,
                   int64_t from, int64_t to, float* taps) {
  const int64_t c = shape.features, width = shape.width();
  ForBlocks(
      sentences, from, to, kGradInputBlock,
      [&](int64_t begin, int64_t end, int64_t first, int64_t last) HWY_ATTR {
        // Rows whose taps reach the block.
        const int64_t low = HWY_MAX(first, begin - shape.behind());
        const int64_t high = HWY_MIN(last, end + shape.before());
        MakeTaps(shape, logits, low, high - low, taps);
        DropTaps(shape, mask, low, high - low, taps);
        // Of row `low`, the tap that takes the block's first row; the next row
        // takes it with the tap before.
        const int64_t tap = begin - low + shape.before();
        for (int64_t h = 0; h < shape.heads; ++h) {
          const WeightedSum sum = {.weights = taps + h * shape.kernel + tap,
                                   .row_step = 1,
                                   .term_step = shape.taps() - 1,
                                   .terms = high - low,
                                   .first = tap - shape.kernel + 1,
                                   .end = tap + 1,
                                   .step = 1};
          SumRows(sum, {grad_y, low * c + h * width, c}, end - begin, width,
                  {grad_u, begin * c + h * width, c});
        }
      });
}

// The gradients of the taps of rows [t, t + rows) of one head, which are 0
// where they come; taps are `stride` apart from row to row.
void GradTapsOf(const DynamicConvShape& shape, int64_t head, int64_t first,
                int64_t last, const ConstTensor& u, const ConstTensor& grad_y,
                int64_t t, int64_t rows, float* dots, float* grad_taps) {
  const int64_t c = shape.features, at = head * shape.width();
  const int64_t low = HWY_MAX(first, t - shape.before());
  const int64_t high = HWY_MIN(last, t + rows + shape.behind());
  DotRows<kGradRows>({grad_y, t * c + at, c}, rows, {u, low * c + at, c},
                     high - low, shape.width(), 1.0f, dots, high - low);
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t begin = t + r - shape.before();  // its tap 0
    const int64_t from = HWY_MAX(low, begin);
    const int64_t to = HWY_MIN(high, begin + shape.kernel);
    std::copy(
        dots + r * (high - low) + from - low,
        dots + r * (high - low) + to - low,
        grad_taps + r * shape.taps() + head * shape.kernel + from - begin);
  }
}

// Rows [from, to) of grad_logits.
void GradLogitsRows(const DynamicConvShape& shape, const Sentences& sentences,
                    const DropoutMask& mask, const ConstTensor& u,
                    const ConstTensor& logits, const ConstTensor& grad_y,
                    const Tensor& grad_logits, int64_t from, int64_t to,
                    float* scratch) {
  float* taps = scratch;
  float* grads = taps + kConvBlock * shape.taps();
  float* dots = grads + kConvBlock * shape.taps();
  ForBlocks(sentences, from, to, kConvBlock,
            [&](int64_t begin, int64_t end, int64_t first, int64_t last)
                HWY_ATTR {
                  const int64_t rows = end - begin;
                  std::fill(grads, grads + rows * shape.taps(), 0.0f);
                  for (int64_t h = 0; h < shape.heads; ++h) {
                    for (int64_t r = 0; r < rows; r += kGradRows) {
                      GradTapsOf(shape, h, first, last, u, grad_y, begin + r,
                                 HWY_MIN(kGradRows, rows - r), dots,
                                 grads + r * shape.taps());
                    }
                  }
                  DropTaps(shape, mask, begin, rows, grads);
                  MakeTaps(shape, logits, begin, rows, taps);
                  for (int64_t i = 0; i < rows * shape.heads; ++i) {
                    const float* p = taps + i * shape.kernel;
                    float* grad = grads + i * shape.kernel;
                    const auto kernel = static_cast<size_t>(shape.kernel);
                    const V mean = hn::Set(D(), DotOfRows(kernel, p, grad));
                    MapRow(shape.kernel, p, grad, [=](V g, V tap) HWY_ATTR {
                      return hn::Mul(tap, hn::Sub(g, mean));
                    });
                  }
                  WritePiece(rows * shape.taps(), grads, grad_logits,
                             begin * shape.taps());
                });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace thimble::kernels {

Workspace DynamicConvWorkspace(const DynamicConvShape& shape) {
  const int64_t input = (kGradInputBlock + shape.kernel - 1) * shape.taps();
  const int64_t logits = 2 * kConvBlock * shape.taps() +
                         kGradRows * (shape.kernel + kGradRows - 1);
  return {.per_thread =
              static_cast<size_t>(std::max(input, logits)) * sizeof(float),
          .shared = 0};
}

void DynamicConv(const DynamicConvShape& shape, const Sentences& sentences,
                 const DropoutMask& mask, ConstTensor u, ConstTensor logits,
                 Tensor y, const KernelContext& context) {
  const auto rows = THIMBLE_DISPATCH(ConvolveRows).Get();
  context.pool->ParallelFor(sentences.rows(),
                            [&](int64_t from, int64_t to, int thread) {
                              rows(shape, sentences, mask, u, logits, y, from,
                                   to, context.PerThread<float>(thread));
                            });
}

void DynamicConvGradInput(const DynamicConvShape& shape,
                          const Sentences& sentences, const DropoutMask& mask,
                          ConstTensor logits, ConstTensor grad_y, Tensor grad_u,
                          const KernelContext& context) {
  const auto rows = THIMBLE_DISPATCH(GradInputRows).Get();
  context.pool->ParallelFor(
      sentences.rows(), [&](int64_t from, int64_t to, int thread) {
        rows(shape, sentences, mask, logits, grad_y, grad_u, from, to,
             context.PerThread<float>(thread));
      });
}

void DynamicConvGradLogits(const DynamicConvShape& shape,
                           const Sentences& sentences, const DropoutMask& mask,
                           ConstTensor u, ConstTensor logits,
                           ConstTensor grad_y, Tensor grad_logits,
                           const KernelContext& context) {
  const auto rows = THIMBLE_DISPATCH(GradLogitsRows).Get();
  context.pool->ParallelFor(
      sentences.rows(), [&](int64_t from, int64_t to, int thread) {
        rows(shape, sentences, mask, u, logits, grad_y, grad_logits, from, to,
             context.PerThread<float>(thread));
      });
}

}  // namespace thimble::kernels
#endif  // HWY_ONCE
