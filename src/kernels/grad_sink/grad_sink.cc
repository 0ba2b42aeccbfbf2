// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/grad_sink/grad_sink.cc"
#include "kernels/grad_sink/grad_sink.h"

#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "base/check.h"
#include "kernels/pieces-inl.h"
#include "kernels/simd-inl.h"
#include "kernels/target.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

// to = addend + sums, or sums where there is no addend.
void StoreSums(int64_t first, int64_t n, const RandomAddress& random,
               ConstTensor addend, float* sums, Tensor to) {
  float buffer[kPiece];
  for (int64_t i = 0; i < n; i += kPiece) {
    const int64_t count = HWY_MIN(kPiece, n - i);
    const int64_t at = first + i;
    if (addend.is_there()) {
      const float* there = LoadPiece(addend, at, count, buffer);
      MapRow(count, there, sums + i,
             [](V sum, V before) HWY_ATTR { return hn::Add(before, sum); });
    }
    if (to.dtype() == DType::kF32) {
      WritePiece(count, sums + i, to, at);
    } else {
      StorePiece(sums + i, at, count, {Rounding::kNearest, random}, to);
    }
  }
}

// Elements [first, last), first a multiple of kPiece.
void HandRange(int64_t first, int64_t last, ConstTensor from,
               const PieceSink& sink) {
  float buffer[kPiece];
  float sums[kPiece];
  for (int64_t at = first; at < last; at += kPiece) {
    const int64_t n = HWY_MIN(kPiece, last - at);
    const float* there = LoadPiece(from, at, n, buffer);
    CopyRowAs(n, there, sums, [](V v) HWY_ATTR { return v; });
    sink.Take(at, n, sums);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace thimble::kernels {

void StoredSink::Take(int64_t first, int64_t n, float* sums) const {
  TH_CHECK(!addend_.is_there() ||
           (addend_.dtype() == to_.dtype() &&
            addend_.is_in_blocks() == to_.is_in_blocks()));
  THIMBLE_DISPATCH(StoreSums).Get()(first, n, random_, addend_, sums, to_);
}

void HandOver(int64_t n, ConstTensor from, const PieceSink& sink,
              const KernelContext& context) {
  constexpr int64_t kUnit = 4096;  // whole pieces
  const auto range = THIMBLE_DISPATCH(HandRange).Get();
  context.pool->ParallelFor(
      (n + kUnit - 1) / kUnit, [&](int64_t begin, int64_t end, int) {
        range(begin * kUnit, end * kUnit < n ? end * kUnit : n, from, sink);
      });
}

}  // namespace thimble::kernels
#endif  // HWY_ONCE
