// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/attention.cc"
#include "kernels/attention/attention.h"

#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <algorithm>

#include "kernels/attention/blocks.h"
#include "kernels/elementwise/dropout-inl.h"
#include "kernels/row_products-inl.h"
#include "kernels/softmax_row-inl.h"
#include "kernels/stage-inl.h"
#include "kernels/target.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

// One head of one sentence: `queries` and `keys` are counts, and places are
// counted from the first one of each.
struct OneHead {
  OneHead(const AttentionShape& s, const DropoutMask& m, const Sentences& of_q,
          const Sentences& of_k, int64_t sentence, int64_t h)
      : shape(s),
        mask(m),
        head(h),
        query0(of_q.begin(sentence)),
        key0(of_k.begin(sentence)),
        queries(of_q.end(sentence) - query0),
        keys(of_k.end(sentence) - key0) {}

  // Keys that a query looks at.
  int64_t KeysOf(int64_t query) const {
    return shape.causal ? HWY_MIN(keys, query + 1) : keys;
  }
  ConstRows Queries(const ConstTensor& x, int64_t query) const {
    return {x, (query0 + query) * shape.features + head * shape.width(),
            shape.features};
  }
  Rows Queries(const Tensor& x, int64_t query) const {
    return {x, (query0 + query) * shape.features + head * shape.width(),
            shape.features};
  }
  ConstRows Keys(const ConstTensor& x, int64_t key) const {
    return {x, (key0 + key) * shape.features + head * shape.width(),
            shape.features};
  }
  Rows Keys(const Tensor& x, int64_t key) const {
    return {x, (key0 + key) * shape.features + head * shape.width(),
            shape.features};
  }

  const AttentionShape& shape;
  const DropoutMask& mask;
  int64_t head, query0, key0, queries, keys;
};

// The probabilities of `n` keys from `key` on, which begins a group, where
// dropout keeps them, else 0. In place.
void DropKeys(const OneHead& one, int64_t query, int64_t key, int64_t n,
              float* p) {
  const PhiloxKeys philox(one.mask.seed);
  constexpr auto kGroup = static_cast<int64_t>(kDropoutGroup);
  for (int64_t i = 0; i < n; i += kGroup) {
    const AttentionCounters counters = AttentionCountersOf(
        one.shape, one.mask, one.query0 + query, one.head, (key + i) / kGroup);
    DropoutMask mask = one.mask;
    mask.step = counters.step;
    DropoutGroupOf(mask, philox, counters.first,
                   static_cast<size_t>(HWY_MIN(kGroup, n - i)), p + i, p + i);
  }
}

// y[i, j] = scale * a[query + i] . b[key + j], of `rows` queries and the keys
// from `key` to `end` that they look at; what else is in a row is undefined.
void DotsOf(const OneHead& one, const ConstRows& a, const ConstRows& b,
            int64_t query, int64_t rows, int64_t key, int64_t end, float scale,
            float* y, int64_t row) {
  const int64_t together = one.shape.causal ? kDotRows : rows;
  for (int64_t i = 0; i < rows; i += together) {
    const int64_t m = HWY_MIN(together, rows - i);
    const int64_t n = HWY_MIN(end, one.KeysOf(query + i + m - 1)) - key;
    if (n <= 0) continue;
    DotRows<kDotRows>(a.From(i), m, b, n, one.shape.width(), scale, y + i * row,
                      row);
  }
}

// Sums over the keys from the first one on that each query looks at, for a
// block of queries from `query` on.
WeightedSum OverKeys(const OneHead& one, int64_t query, int64_t rows,
                     const float* weights, int64_t row) {
  WeightedSum sum = {.weights = weights,
                     .row_step = row,
                     .term_step = 1,
                     .terms = one.KeysOf(query + rows - 1)};
  if (one.shape.causal) {
    sum.first = -rows;
    sum.end = query + 1;
    sum.step = 1;
  }
  return sum;
}

// Sums over `rows` queries from `query` on that look at each key, for keys
// from `key` on.
WeightedSum OverQueries(const OneHead& one, int64_t query, int64_t rows,
                        int64_t key, const float* weights, int64_t row) {
  WeightedSum sum = {
      .weights = weights, .row_step = 1, .term_step = row, .terms = rows};
  if (one.shape.causal) {
    sum.first = key - query;
    sum.step = 1;
  }
  return sum;
}

// ---- Forward

// Queries [from, to) of the text.
void AttendRows(const AttentionShape& shape, const Sentences& queries,
                const Sentences& keys, const DropoutMask& mask,
                const ConstTensor& q, const ConstTensor& k,
                const ConstTensor& v, const Tensor& y, int64_t from, int64_t to,
                float* p) {
  for (int64_t n = queries.Of(from); from < to; ++n) {
    const int64_t begin = from - queries.begin(n);
    const int64_t end = HWY_MIN(queries.end(n), to) - queries.begin(n);
    from += end - begin;
    for (int64_t h = 0; h < shape.heads; ++h) {
      const OneHead one(shape, mask, queries, keys, n, h);
      const int64_t row = AttentionRow(one.keys);
      const int64_t most =
          QueriesOfBlock(kAttentionFloats, end - begin, one.keys);
      for (int64_t t = begin; t < end; t += most) {
        const int64_t rows = HWY_MIN(most, end - t);
        DotsOf(one, one.Queries(q, t), one.Keys(k, 0), t, rows, 0, one.keys,
               shape.scale(), p, row);
        for (int64_t i = 0; i < rows && one.keys > 0; ++i) {
          const int64_t count = one.KeysOf(t + i);
          SoftmaxRow(static_cast<size_t>(count), p + i * row);
          if (mask.rate > 0) DropKeys(one, t + i, 0, count, p + i * row);
        }
        SumRows(OverKeys(one, t, rows, p, row), one.Keys(v, 0), rows,
                shape.width(), one.Queries(y, t));
      }
    }
  }
}

// ---- Backward

// From probabilities p, what dropout left of them in `dropped`, and the
// latter's gradients in `grad`: the gradients of the dot products.
HWY_NOINLINE void GradLogitsOf(int64_t n, float scale, float mean,
                               const float* p, const float* dropped,
                               float* grad) {
  const D d;
  const V factor = hn::Set(d, scale);
  const V m = hn::Set(d, mean);
  for (int64_t i = 0; i < n; i += LaneCount()) {
    const auto left = static_cast<size_t>(n - i);
    const bool whole = left >= hn::Lanes(d);
    const auto load = [&](const float* from) HWY_ATTR {
      return whole ? hn::LoadU(d, from + i) : LoadFirst(d, from + i, left);
    };
    const V product = hn::Mul(load(dropped), load(grad));
    StoreUpTo(hn::Mul(factor, hn::NegMulAdd(load(p), m, product)), grad + i,
              left);
  }
}

// Scratch of one thread.
struct GradScratch {
  GradScratch(const AttentionGradScratch& sizes, float* from)
      : p(from),
        grad(p + sizes.block),
        tile_p(from),
        tile_grad(tile_p + kQueryTile * kKeyBlock),
        sums(tile_grad + kQueryTile * kKeyBlock),
        line(from + sizes.blocks),
        statistics(reinterpret_cast<QueryStatistics*>(line + sizes.line)) {}
  float *p, *grad;
  float *tile_p, *tile_grad, *sums;
  float* line;
  QueryStatistics* statistics;
};

// `n` probabilities before dropout at p, of keys from `key` on, become those
// behind it; the gradients of the latter at `grad` become those of the dot
// products. With `mean`, it is found first, of all keys.
void DropAndGrad(const OneHead& one, int64_t query, int64_t key, int64_t n,
                 bool finds_mean, float* p, float* grad, float* line,
                 float* mean) {
  const float* before = p;
  if (one.mask.rate > 0) {
    std::copy(p, p + n, line);
    before = line;
    DropKeys(one, query, key, n, p);
  }
  if (finds_mean) *mean = DotOfRows(static_cast<size_t>(n), p, grad);
  GradLogitsOf(n, one.shape.scale(), *mean, before, p, grad);
}

// Probabilities and the gradients of dot products of `rows` queries from
// `query` on with all keys, and from them the gradient of the queries.
void GradQueries(const OneHead& one, const AttentionGradTensors& x,
                 int64_t query, int64_t rows, const GradScratch& scratch) {
  const int64_t row = AttentionRow(one.keys);
  DotsOf(one, one.Queries(x.q, query), one.Keys(x.k, 0), query, rows, 0,
         one.keys, one.shape.scale(), scratch.p, row);
  DotsOf(one, one.Queries(x.grad_y, query), one.Keys(x.v, 0), query, rows, 0,
         one.keys, 1.0f, scratch.grad, row);
  for (int64_t i = 0; i < rows && one.keys > 0; ++i) {
    const int64_t count = one.KeysOf(query + i);
    QueryStatistics& found = scratch.statistics[query + i];
    float* p = scratch.p + i * row;
    const RowSoftmax softmax = SoftmaxRow(static_cast<size_t>(count), p);
    found.largest = softmax.largest;
    found.inverse = softmax.inverse;
    DropAndGrad(one, query + i, 0, count, /*finds_mean=*/true, p,
                scratch.grad + i * row, scratch.line, &found.mean);
  }
  SumRows(OverKeys(one, query, rows, scratch.grad, row), one.Keys(x.k, 0), rows,
          one.shape.width(), one.Queries(x.grads.q, query));
}

// The gradients of `count` keys and values from `key` on, a tile of queries
// after the other.
void GradKeys(const OneHead& one, const AttentionGradTensors& x, int64_t key,
              int64_t count, const GradScratch& scratch) {
  const int64_t width = one.shape.width();
  float* sums_k = scratch.sums;
  float* sums_v = sums_k + kKeyBlock * width;
  std::fill(sums_k, sums_k + 2 * kKeyBlock * width, 0.0f);
  const int64_t first = one.shape.causal ? HWY_MIN(key, one.queries) : 0;
  for (int64_t t = first; t < one.queries; t += kQueryTile) {
    const int64_t rows = HWY_MIN(kQueryTile, one.queries - t);
    DotsOf(one, one.Queries(x.q, t), one.Keys(x.k, key), t, rows, key,
           key + count, one.shape.scale(), scratch.tile_p, kKeyBlock);
    DotsOf(one, one.Queries(x.grad_y, t), one.Keys(x.v, key), t, rows, key,
           key + count, 1.0f, scratch.tile_grad, kKeyBlock);
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t n = HWY_MIN(key + count, one.KeysOf(t + i)) - key;
      QueryStatistics& found = scratch.statistics[t + i];
      float* p = scratch.tile_p + i * kKeyBlock;
      RepeatSoftmax({found.largest, found.inverse}, static_cast<size_t>(n), p);
      DropAndGrad(one, t + i, key, n, /*finds_mean=*/false, p,
                  scratch.tile_grad + i * kKeyBlock, scratch.line, &found.mean);
    }
    SumRows(OverQueries(one, t, rows, key, scratch.tile_grad, kKeyBlock),
            one.Queries(x.q, t), count, width, {F32(sums_k), 0, width}, true);
    SumRows(OverQueries(one, t, rows, key, scratch.tile_p, kKeyBlock),
            one.Queries(x.grad_y, t), count, width, {F32(sums_v), 0, width},
            true);
  }
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at = one.Keys(x.k, key + i).first;
    WritePiece(width, sums_k + i * width, x.grads.k, at);
    WritePiece(width, sums_v + i * width, x.grads.v, at);
  }
}

// Head `unit % heads` of sentence `unit / heads`, of units [from, to).
void GradUnits(const AttentionShape& shape, const Sentences& queries,
               const Sentences& keys, const DropoutMask& mask,
               const AttentionGradTensors& x, int64_t from, int64_t to,
               const AttentionGradScratch& sizes, float* floats) {
  const GradScratch scratch(sizes, floats);
  for (int64_t unit = from; unit < to; ++unit) {
    const OneHead one(shape, mask, queries, keys, unit / shape.heads,
                      unit % shape.heads);
    const int64_t most =
        QueriesOfBlock(kAttentionGradFloats, one.queries, one.keys);
    for (int64_t t = 0; t < one.queries; t += most) {
      GradQueries(one, x, t, HWY_MIN(most, one.queries - t), scratch);
    }
    if (one.queries > most) {
      for (int64_t s = 0; s < one.keys; s += kKeyBlock) {
        GradKeys(one, x, s, HWY_MIN(kKeyBlock, one.keys - s), scratch);
      }
      continue;
    }
    // All that is needed of them is still there.
    const int64_t row = AttentionRow(one.keys);
    SumRows(OverQueries(one, 0, one.queries, 0, scratch.grad, row),
            one.Queries(x.q, 0), one.keys, shape.width(),
            one.Keys(x.grads.k, 0));
    SumRows(OverQueries(one, 0, one.queries, 0, scratch.p, row),
            one.Queries(x.grad_y, 0), one.keys, shape.width(),
            one.Keys(x.grads.v, 0));
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace thimble::kernels {

namespace {

int64_t LongestOf(const Sentences& sentences) {
  int64_t longest = 0;
  for (int64_t n = 0; n < sentences.count; ++n) {
    longest = std::max(longest, sentences.end(n) - sentences.begin(n));
  }
  return longest;
}

}  // namespace

Workspace AttentionWorkspace(int64_t keys) {
  return {
      .per_thread = static_cast<size_t>(BlockFloats(kAttentionFloats, keys)) *
                    sizeof(float),
      .shared = 0};
}

Workspace AttentionGradWorkspace(const AttentionShape& shape, int64_t queries,
                                 int64_t keys) {
  const AttentionGradScratch sizes(shape, queries, keys);
  return {.per_thread = static_cast<size_t>(sizes.total()) * sizeof(float),
          .shared = 0};
}

void Attention(const AttentionShape& shape, const Sentences& queries,
               const Sentences& keys, const DropoutMask& mask, ConstTensor q,
               ConstTensor k, ConstTensor v, Tensor y,
               const KernelContext& context) {
  const auto rows = THIMBLE_DISPATCH(AttendRows).Get();
  context.pool->ParallelFor(queries.rows(),
                            [&](int64_t from, int64_t to, int thread) {
                              rows(shape, queries, keys, mask, q, k, v, y, from,
                                   to, context.PerThread<float>(thread));
                            });
}

void AttentionGrad(const AttentionShape& shape, const Sentences& queries,
                   const Sentences& keys, const DropoutMask& mask,
                   ConstTensor q, ConstTensor k, ConstTensor v,
                   ConstTensor grad_y, const AttentionGradients& grads,
                   const KernelContext& context) {
  const auto units = THIMBLE_DISPATCH(GradUnits).Get();
  const AttentionGradScratch sizes(shape, LongestOf(queries), LongestOf(keys));
  context.pool->ParallelFor(
      queries.count * shape.heads, [&](int64_t from, int64_t to, int thread) {
        units(shape, queries, keys, mask, {q, k, v, grad_y, grads}, from, to,
              sizes, context.PerThread<float>(thread));
      });
}

}  // namespace thimble::kernels
#endif  // HWY_ONCE
