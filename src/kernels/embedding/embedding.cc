// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/embedding/embedding.cc"
#include "kernels/embedding/embedding.h"

#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "kernels/embedding/calls.h"
#include "kernels/embedding/sinusoid-inl.h"
#include "kernels/embedding/stored_rows.h"
#include "kernels/embedding/sums-inl.h"
#include "kernels/stage-inl.h"
#include "kernels/target.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

// Kept blocks that are unpacked at a time, and values.
constexpr int64_t kBlocksAtATime = 128;
constexpr int64_t kValuesAtATime = 512;

// The dense row of a token, in `line`.
void ExpandRow(const embedding::StoredRows& rows, const ConstTensor& values,
               int64_t token, float* line) {
  uint16_t columns[kBlocksAtATime];
  float piece[kValuesAtATime];
  const WeightBlock& block = rows.block();
  const int64_t of_unit = token % rows.unit() * block.inputs;
  const sparse::PatternRow row = rows.Row(token / rows.unit());
  std::memset(line, 0,
              static_cast<size_t>(rows.shape().features) * sizeof(float));
  const int64_t most = HWY_MIN(kBlocksAtATime, kValuesAtATime / block.values());
  for (int64_t i = 0; i < row.count();) {
    const int64_t n = HWY_MIN(HWY_MAX(most, 1), row.count() - i);
    row.ReadBlocks(i, n, columns);
    const int64_t at = (row.first + i) * block.values();
    i += n;
    if (most == 0) {  // a block is more than a piece
      Widen(values, at + of_unit, block.inputs,
            line + columns[0] * block.inputs);
      continue;
    }
    const float* from = ReadPiece(values, at, n * block.values(), piece);
    from += of_unit;
    for (int64_t k = 0; k < n; ++k, from += block.values()) {
      float* to = line + columns[k] * block.inputs;
      for (int64_t c = 0; c < block.inputs; ++c) to[c] = from[c];
    }
  }
}

// Rows [begin, end). `line`: room for a row.
void EmbeddingRows(int64_t begin, int64_t end, const EmbeddingCall& call,
                   const embedding::StoredRows& rows, float* line) {
  const int64_t features = rows.shape().features;
  const ConstTensor values = call.w.values();
  const V factor = hn::Set(D(), call.scale);
  int64_t sentence = call.sentences == nullptr ? 0 : call.sentences->Of(begin);
  for (int64_t r = begin; r < end; ++r) {
    float* to = PieceToWrite(call.y, r * features, line);
    const float* w = to;
    if (rows.is_sparse()) {
      ExpandRow(rows, values, call.tokens[r], to);
    } else {
      w = ReadPiece(values, call.tokens[r] * features, features, to);
    }
    if (call.sentences == nullptr) {
      CopyRowAs(features, w, to,
                [=](V v) HWY_ATTR { return hn::Mul(v, factor); });
    } else {
      while (sentence < call.sentences->count &&
             call.sentences->end(sentence) <= r) {
        ++sentence;
      }
      AddPosition(static_cast<size_t>(features), call.scale, call.frequencies,
                  r - call.sentences->begin(sentence) + kFirstPosition, w, to);
    }
    WritePiece(features, to, call.y, r * features);
  }
}

// Units whose rows begin at places [begin, end) of the order: their sums go to
// where the gradient is stored.
void StoreUnits(int64_t begin, int64_t end, const EmbeddingGradCall& call,
                float* scratch) {
  const auto unit_at = [&](int64_t i) {
    return call.order.TokenAt(i) / call.rows.unit();
  };
  for (int64_t i = begin; i < end;) {
    const int64_t unit = unit_at(i);
    int64_t last = i + 1;
    while (last < call.order.count && unit_at(last) == unit) ++last;
    if (i == 0 || unit_at(i - 1) != unit) {
      const int64_t n = call.rows.Count(unit);
      float* sums = scratch + call.line_floats();
      SumUnit(call, unit, i, last, 0, n, scratch, sums);
      StoreSums(call, call.rows.First(unit), n, sums);
    }
    i = last;
  }
}

// The sums of values [first, first + n), of all units that they are of.
void SumValues(int64_t first, int64_t n, const EmbeddingGradCall& call,
               float* scratch, float* sums) {
  const int64_t end = first + n;
  int64_t unit = call.rows.Holds(first);
  int64_t at = call.rows.First(unit);
  int64_t place = call.order.From(unit * call.rows.unit());
  for (; at < end; ++unit) {
    const int64_t next = at + call.rows.Count(unit);
    const int64_t behind = (unit + 1) * call.rows.unit();
    int64_t last = place;
    while (last < call.order.count && call.order.TokenAt(last) < behind) ++last;
    const int64_t from = HWY_MAX(first, at), to = HWY_MIN(end, next);
    if (from < to)
      SumUnit(call, unit, place, last, from - at, to - at, scratch,
              sums + (from - first));
    place = last;
    at = next;
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace thimble::kernels {
namespace {

using embedding::StoredRows;

constexpr int64_t kMostLanes = 16;

// One for a sine and a cosine, in whole vectors.
constexpr int64_t Frequencies(int64_t features) {
  return (features / 2 + kMostLanes - 1) / kMostLanes * kMostLanes;
}

// In quarters of a turn for a step of one position.
void FillFrequencies(int64_t features, double* frequencies) {
  constexpr double kQuarter = 1.57079632679489661923;
  const int64_t half = features / 2;
  const double ratio = std::pow(10000.0, -1.0 / static_cast<double>(half - 1));
  double frequency = 1.0 / kQuarter;
  for (int64_t i = 0; i < Frequencies(features); ++i) {
    frequencies[i] = i < half ? frequency : 0.0;
    frequency *= ratio;
  }
}

// Whole blocks of gradients, and about a page of the first cache.
constexpr int64_t kPieceFloats = 4096;
static_assert(kPieceFloats % ConstTensor::kBlock == 0);

// Frequent tokens have low numbers, so neighbours are dealt out among the
// threads.
int64_t Dealt(int64_t i, int64_t n) {
  constexpr int64_t kPrime = 7919;
  return n % kPrime == 0 ? i : i * kPrime % n;
}

// Zeros for all units that do not occur.
void ClearUnits(const EmbeddingGradCall& call, const KernelContext& context) {
  const DType dtype = call.target.to.dtype();
  auto* const to = static_cast<std::byte*>(call.target.to.data());
  const auto clear = [&](int64_t begin, int64_t end) {
    const int64_t first = call.rows.First(begin);
    std::memset(to + BytesFor(dtype, first), 0,
                BytesFor(dtype, call.rows.First(end) - first));
  };
  context.pool->ParallelFor(
      call.rows.units(), [&](int64_t begin, int64_t end, int) {
        int64_t place = call.order.From(begin * call.rows.unit());
        while (begin < end) {
          int64_t used = end;
          if (place < call.order.count) {
            used = std::min(used, call.order.TokenAt(place) / call.rows.unit());
          }
          if (used > begin) clear(begin, used);
          begin = used + 1;
          place = call.order.From(begin * call.rows.unit());
        }
      });
}

}  // namespace

Workspace EmbeddingWorkspace(const EmbeddingShape& shape) {
  const int64_t doubles =
      Frequencies(shape.features) + StoredRows::StartsOf(shape);
  return {.per_thread = static_cast<size_t>(shape.features) * sizeof(float),
          .shared = static_cast<size_t>(doubles) * sizeof(double)};
}

void Embedding(const EmbeddingShape& shape, int64_t rows, float scale,
               const int32_t* tokens, const ConstTensor& w,
               const Sentences* sentences, const Tensor& y,
               const KernelContext& context) {
  TH_CHECK(w.is_sparse() == shape.blocks.has_value());
  auto* const frequencies = context.Shared<double>();
  if (sentences != nullptr) {
    TH_CHECK(shape.features % 2 == 0 && shape.features >= 4);
    FillFrequencies(shape.features, frequencies);
  }
  const StoredRows stored(
      shape, w.pattern(),
      reinterpret_cast<int64_t*>(frequencies + Frequencies(shape.features)));
  const EmbeddingCall call = {scale, tokens, w, sentences, frequencies, y};
  const auto run = THIMBLE_DISPATCH(EmbeddingRows).Get();
  context.pool->ParallelFor(rows, [&](int64_t begin, int64_t end, int thread) {
    run(begin, end, call, stored, context.PerThread<float>(thread));
  });
}

Workspace EmbeddingGradWorkspace(const EmbeddingShape& shape, int64_t rows) {
  const int64_t unit = StoredRows::UnitOf(shape) * shape.features;
  const int64_t floats = shape.blocks.has_value() ? 2 * unit : unit;
  return {.per_thread = static_cast<size_t>(floats) * sizeof(float),
          .shared = static_cast<size_t>(StoredRows::StartsOf(shape)) *
                        sizeof(int64_t) +
                    static_cast<size_t>(2 * rows) * sizeof(int32_t)};
}

Workspace EmbeddingGradPiecesWorkspace(const EmbeddingShape& shape,
                                       int64_t rows) {
  const int64_t unit = StoredRows::UnitOf(shape) * shape.features;
  const int64_t floats =
      shape.blocks.has_value() ? unit + kPieceFloats : kPieceFloats;
  Workspace workspace = EmbeddingGradWorkspace(shape, rows);
  workspace.per_thread = static_cast<size_t>(floats) * sizeof(float);
  return workspace;
}

void EmbeddingGrad(const EmbeddingShape& shape, int64_t rows, float scale,
                   const int32_t* tokens, const ConstTensor& grad_y,
                   const EmbeddingTarget& grad_w,
                   const KernelContext& context) {
  TH_CHECK((grad_w.pattern != nullptr) == shape.blocks.has_value());
  auto* const starts = context.Shared<int64_t>();
  const StoredRows stored(shape, grad_w.pattern, starts);
  const embedding::TokenOrder order = embedding::OrderTokens(
      shape.vocabulary, rows, tokens,
      reinterpret_cast<int32_t*>(starts + StoredRows::StartsOf(shape)));
  const EmbeddingGradCall call = {scale, stored, order, grad_y, grad_w};
  if (grad_w.pieces == nullptr) {
    if (!grad_w.accumulate) ClearUnits(call, context);
    const auto run = THIMBLE_DISPATCH(StoreUnits).Get();
    context.pool->ParallelFor(
        rows, [&](int64_t begin, int64_t end, int thread) {
          run(begin, end, call, context.PerThread<float>(thread));
        });
    return;
  }
  const auto run = THIMBLE_DISPATCH(SumValues).Get();
  const int64_t values = stored.values();
  const int64_t pieces = (values + kPieceFloats - 1) / kPieceFloats;
  context.pool->ParallelFor(
      pieces, [&](int64_t begin, int64_t end, int thread) {
        auto* const scratch = context.PerThread<float>(thread);
        float* const sums = scratch + call.line_floats();
        for (int64_t i = begin; i < end; ++i) {
          const int64_t first = Dealt(i, pieces) * kPieceFloats;
          const int64_t n = std::min(kPieceFloats, values - first);
          run(first, n, call, scratch, sums);
          grad_w.pieces->Take(first, n, sums);
        }
      });
}

}  // namespace thimble::kernels
#endif  // HWY_ONCE
