// SPDX-License-Identifier: Apache-2.0
//
// Sums over the entries of sparse weights at any number of positions, and the
// products that their gradient is made of. Included once per SIMD target, after
// <hwy/highway.h>; hence no `#pragma once`.
#if defined(THIMBLE_KERNELS_SPARSE_PRODUCTS_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef THIMBLE_KERNELS_SPARSE_PRODUCTS_INL_H_
#undef THIMBLE_KERNELS_SPARSE_PRODUCTS_INL_H_
#else
#define THIMBLE_KERNELS_SPARSE_PRODUCTS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "kernels/elements-inl.h"
#include "kernels/lane_sums-inl.h"
#include "kernels/sparse/unpack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

// sums[q] (+)= what the entries give at kV vectors of positions.
template <int64_t kV>
HWY_INLINE void SumEntries(const Unpacker::Run& run, bool adds,
                           const float* HWY_RESTRICT tile,
                           float* HWY_RESTRICT sums) {
  const D d;
  const int64_t lanes = LaneCount();
  V acc[kV];
  THIMBLE_UNROLL
  for (int64_t v = 0; v < kV; ++v) {
    acc[v] = adds ? hn::LoadU(d, sums + v * lanes) : hn::Zero(d);
  }
  for (const sparse::Entry* e = run.first; e != run.last; ++e) {
    const float* x = tile + e->offset;
    const V weight = hn::Set(d, e->weight);
    THIMBLE_UNROLL
    for (int64_t v = 0; v < kV; ++v) {
      acc[v] = hn::MulAdd(weight, hn::LoadU(d, x + v * lanes), acc[v]);
    }
  }
  THIMBLE_UNROLL
  for (int64_t v = 0; v < kV; ++v) hn::StoreU(acc[v], d, sums + v * lanes);
}

// The same at `positions` of them, and up to a vector past these.
void SumPositions(const Unpacker::Run& run, bool adds, int64_t positions,
                  const float* tile, float* sums) {
  constexpr int64_t kMost = 8;
  const int64_t lanes = LaneCount();
  int64_t left = (positions + lanes - 1) / lanes;
  for (; left >= kMost; left -= kMost) {
    SumEntries<kMost>(run, adds, tile, sums);
    tile += kMost * lanes;
    sums += kMost * lanes;
  }
  if (left >= 4) {
    SumEntries<4>(run, adds, tile, sums);
    tile += 4 * lanes;
    sums += 4 * lanes;
    left -= 4;
  }
  for (; left > 0; --left, tile += lanes, sums += lanes) {
    SumEntries<1>(run, adds, tile, sums);
  }
}

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

// The same of `count` entries.
void AddRunProducts(const float* tile, const float* grad, int64_t n,
                    const int32_t* offsets, float* sums, int64_t count) {
  int64_t i = 0;
  for (; i + kFew <= count; i += kFew) {
    AddProducts(tile, grad, n, offsets + i, sums + i);
  }
  if (i == count) return;
  int32_t last_offsets[kFew];
  float last_sums[kFew];
  for (int64_t k = 0; k < kFew; ++k) {
    const int64_t at = HWY_MIN(i + k, count - 1);
    last_offsets[k] = offsets[at];
    last_sums[k] = sums[at];
  }
  AddProducts(tile, grad, n, last_offsets, last_sums);
  for (int64_t k = 0; i + k < count; ++k) sums[i + k] = last_sums[k];
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
