// SPDX-License-Identifier: Apache-2.0
//
// Sums of rows of a gradient. Included once per SIMD target, after
// <hwy/highway.h>; hence no `#pragma once`.
#if defined(THIMBLE_KERNELS_EMBEDDING_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef THIMBLE_KERNELS_EMBEDDING_SUMS_INL_H_
#undef THIMBLE_KERNELS_EMBEDDING_SUMS_INL_H_
#else
#define THIMBLE_KERNELS_EMBEDDING_SUMS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <cstring>

#include "kernels/elements-inl.h"
#include "kernels/embedding/calls.h"
#include "kernels/stage-inl.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

// Columns [column, column + n) of the rows at places [begin, end) of the order,
// summed one after the other, times the scale. Zeros for none.
void SumRowsOf(const EmbeddingGradCall& call, int64_t begin, int64_t end,
               int64_t column, int64_t n, float* sums) {
  if (begin == end) {
    std::memset(sums, 0, static_cast<size_t>(n) * sizeof(float));
    return;
  }
  const int64_t features = call.rows.shape().features;
  const V scale = hn::Set(D(), call.scale);
  WithFloatType(call.grad_y.dtype(), [&](auto type) HWY_ATTR {
    using T = decltype(type);
    const auto* grad_y = call.grad_y.As<T>();
    const auto row = [&](int64_t i) {
      return grad_y + call.order.rows[i] * features + column;
    };
    const auto scaled = [&](V sum) HWY_ATTR { return hn::Mul(sum, scale); };
    if (end - begin == 1) {
      CopyRowAs(n, row(begin), sums, scaled);
      return;
    }
    CopyRowAs(n, row(begin), sums, [](V v) HWY_ATTR { return v; });
    for (int64_t i = begin + 1; i + 1 < end; ++i) {
      MapRow(n, row(i), sums,
             [](V sum, V v) HWY_ATTR { return hn::Add(sum, v); });
    }
    MapRow(n, row(end - 1), sums,
           [&](V sum, V v) HWY_ATTR { return scaled(hn::Add(sum, v)); });
  });
}

// Of the dense rows of a unit, the values [from, to) of those that are kept.
void PickKept(const EmbeddingGradCall& call, int64_t unit, int64_t from,
              int64_t to, const float* lines, float* sums) {
  constexpr int64_t kBlocks = 256;  // at a time
  uint16_t columns[kBlocks];
  const WeightBlock& block = call.rows.block();
  const int64_t features = call.rows.shape().features;
  const int64_t values = block.values();
  const sparse::PatternRow row = call.rows.Row(unit);
  int64_t at = from;
  while (at < to) {
    const int64_t first = at / values;
    const int64_t n =
        HWY_MIN(kBlocks, (to - first * values + values - 1) / values);
    row.ReadBlocks(first, n, columns);
    if (values == 1) {
      for (int64_t k = 0; k < n; ++k) *sums++ = lines[columns[k]];
      at += n;
      continue;
    }
    // A block may be cut by either end.
    const int64_t end = HWY_MIN(to, (first + n) * values);
    for (; at < end; ++at) {
      const int64_t i = at % values;
      const int64_t column =
          columns[at / values - first] * block.inputs + i % block.inputs;
      *sums++ = lines[i / block.inputs * features + column];
    }
  }
}

// Values [from, to) of a unit, whose rows are at places [begin, end) of the
// order. `lines`: call.line_floats() of scratch.
void SumUnit(const EmbeddingGradCall& call, int64_t unit, int64_t begin,
             int64_t end, int64_t from, int64_t to, float* lines, float* sums) {
  if (!call.rows.is_sparse()) {
    SumRowsOf(call, begin, end, from, to - from, sums);
    return;
  }
  if (begin == end) {
    std::memset(sums, 0, static_cast<size_t>(to - from) * sizeof(float));
    return;
  }
  const int64_t features = call.rows.shape().features;
  for (int64_t t = 0; t < call.rows.unit(); ++t) {
    int64_t last = begin;
    while (last < end &&
           call.order.TokenAt(last) == unit * call.rows.unit() + t) {
      ++last;
    }
    SumRowsOf(call, begin, last, 0, features, lines + t * features);
    begin = last;
  }
  PickKept(call, unit, from, to, lines, sums);
}

// Sums of values [first, first + n), to where they are stored.
void StoreSums(const EmbeddingGradCall& call, int64_t first, int64_t n,
               float* sums) {
  const Tensor& to = call.target.to;
  if (call.target.accumulate) {
    WithFloatType(to.dtype(), [&](auto type) HWY_ATTR {
      MapRow(n, to.As<decltype(type)>() + first, sums,
             [](V sum, V before) HWY_ATTR { return hn::Add(before, sum); });
    });
  }
  WritePiece(n, sums, to, first);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
