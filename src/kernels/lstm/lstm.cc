// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/lstm/lstm.cc"
#include "kernels/lstm/lstm.h"

#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <algorithm>

#include "base/check.h"
#include "hwy/contrib/math/math-inl.h"
#include "kernels/convert-inl.h"
#include "kernels/lstm/rows.h"
#include "kernels/simd-inl.h"
#include "kernels/storage.h"
#include "kernels/target.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// `count` is of the elements left, and may be more than a vector's.
template <typename T>
HWY_INLINE V LoadSome(const T* p, size_t count) {
  const D d;
  return count >= hn::Lanes(d) ? LoadAs(d, p) : LoadFirstAs(d, p, count);
}

template <typename T>
HWY_INLINE V LoadOrZero(const T* p, size_t at, size_t count) {
  return p == nullptr ? hn::Zero(D()) : LoadSome(p + at, count);
}

template <typename T>
HWY_INLINE void StoreSome(V v, T* p, size_t count) {
  const D d;
  if (count >= hn::Lanes(d)) {
    StoreAs(v, d, p);
  } else {
    StoreFirstAs(v, d, p, count);
  }
}

// Highway's Exp and Tanh make numbers of a NaN; a diverged run must show.
HWY_INLINE V KeepNan(V x, V y) { return hn::IfThenElse(hn::IsNaN(x), x, y); }

// By exp(−|x|), which is at most 1: 1 / (1 + e) for x ≥ 0, e / (1 + e) below.
HWY_INLINE V Sigmoid(V x) {
  const D d;
  const V one = hn::Set(d, 1.0f);
  const V e = hn::Exp(d, hn::Neg(hn::Abs(x)));
  const V top = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), e, one);
  return KeepNan(x, hn::Div(top, hn::Add(one, e)));
}

HWY_INLINE V TanhOf(V x) { return KeepNan(x, hn::Tanh(D(), x)); }

// 1 − y², by two factors: y² alone would lose what is left beside 1.
HWY_INLINE V OneMinusSquare(V y) {
  const V one = hn::Set(D(), 1.0f);
  return hn::Mul(hn::Sub(one, y), hn::Add(one, y));
}

HWY_INLINE V SigmoidSlope(V y) {
  return hn::Mul(y, hn::Sub(hn::Set(D(), 1.0f), y));
}

// line[i] = f(x[i]) for i < n, and the same into `kept` unless that is null. A
// loop for each function: a vector's functions wait for each other, those of
// neighbouring vectors do not.
template <typename T, typename F>
HWY_INLINE void MapToLine(size_t n, const T* x, const F& f, float* line,
                          T* kept) {
  const D d;
  const size_t lanes = hn::Lanes(d);
  for (size_t k = 0; k < n; k += lanes) {
    const V v = f(LoadSome(x + k, n - k));
    hn::Store(v, d, line + k);
    if (kept != nullptr) StoreSome(v, kept + k, n - k);
  }
}

// REQUIRES: n is at most kLstmBlock.
template <typename T>
void CellRowOf(size_t hidden, size_t at, size_t n, const LstmCellRows& rows) {
  const D d;
  const size_t lanes = hn::Lanes(d);
  const V offset = hn::Set(d, rows.in.forget_offset);
  const T* z = rows.in.z.As<T>() + at;
  const T* c_before = rows.in.c_before.As<T>();
  T* gates = rows.out.gates.As<T>();
  T* c_after = rows.out.c.As<T>() + at;
  T* h = rows.out.h.As<T>() + at;
  const auto gate = [&](size_t which) HWY_ATTR {
    return gates == nullptr ? nullptr : gates + at + which * hidden;
  };
  HWY_ALIGN float i[kLstmBlock], f[kLstmBlock], g[kLstmBlock], o[kLstmBlock];
  const auto sigmoid = [](V v) HWY_ATTR { return Sigmoid(v); };
  MapToLine(n, z, sigmoid, i, gate(0));
  MapToLine(
      n, z + hidden, [&](V v) HWY_ATTR { return Sigmoid(hn::Add(v, offset)); },
      f, gate(1));
  MapToLine(
      n, z + 2 * hidden, [](V v) HWY_ATTR { return TanhOf(v); }, g, gate(2));
  MapToLine(n, z + 3 * hidden, sigmoid, o, gate(3));
  for (size_t k = 0; k < n; k += lanes) {
    const V before = LoadOrZero(c_before, at + k, n - k);
    const V c = hn::MulAdd(hn::Load(d, f + k), before,
                           hn::Mul(hn::Load(d, i + k), hn::Load(d, g + k)));
    StoreSome(c, c_after + k, n - k);
    StoreSome(hn::Mul(hn::Load(d, o + k), TanhOf(c)), h + k, n - k);
  }
}

// The functions first, then what is made of them. REQUIRES: as CellRowOf.
template <typename T>
void CellGradRowOf(size_t hidden, size_t at, size_t n,
                   const LstmCellGradRows& rows) {
  const size_t lanes = hn::Lanes(D());
  const T* c_before = rows.in.c_before.As<T>();
  const T* all_gates = rows.in.gates.As<T>();
  const T* grad_h_in = rows.in.grad_h.As<T>();
  const T* grad_c_in = rows.in.grad_c.As<T>();
  T* all_grad_z = rows.out.grad_z.As<T>();
  T* grad_c_before = rows.out.grad_c_before.As<T>();
  HWY_ALIGN float line[kLstmBlock];
  for (size_t k = 0; k < n; k += lanes) {
    const T* gates = all_gates + at + k;
    const V i = LoadSome(gates, n - k);
    const V f = LoadSome(gates + hidden, n - k);
    const V g = LoadSome(gates + 2 * hidden, n - k);
    const V before = LoadOrZero(c_before, at + k, n - k);
    const V c = hn::MulAdd(f, before, hn::Mul(i, g));
    hn::Store(TanhOf(c), D(), line + k);
  }
  for (size_t k = at; k < at + n; k += lanes) {
    const size_t left = at + n - k;
    const T* gates = all_gates + k;
    const V i = LoadSome(gates, left);
    const V f = LoadSome(gates + hidden, left);
    const V g = LoadSome(gates + 2 * hidden, left);
    const V o = LoadSome(gates + 3 * hidden, left);
    const V before = LoadOrZero(c_before, k, left);
    const V grad_h = LoadOrZero(grad_h_in, k, left);
    const V squashed = hn::Load(D(), line + (k - at));
    const V grad = hn::MulAdd(hn::Mul(grad_h, o), OneMinusSquare(squashed),
                              LoadOrZero(grad_c_in, k, left));
    T* grad_z = all_grad_z + k;
    StoreSome(hn::Mul(hn::Mul(grad, g), SigmoidSlope(i)), grad_z, left);
    StoreSome(hn::Mul(hn::Mul(grad, before), SigmoidSlope(f)), grad_z + hidden,
              left);
    StoreSome(hn::Mul(hn::Mul(grad, i), OneMinusSquare(g)), grad_z + 2 * hidden,
              left);
    StoreSome(hn::Mul(hn::Mul(grad_h, squashed), SigmoidSlope(o)),
              grad_z + 3 * hidden, left);
    if (grad_c_before == nullptr) continue;
    StoreSome(hn::Mul(grad, f), grad_c_before + k, left);
  }
}

}  // namespace

// Positions [at, at + n) of the first row.
void LstmCellRow(size_t hidden, size_t at, size_t n, const LstmCellRows& rows) {
  WithFloatType(rows.in.z.dtype(), [&](auto type) HWY_ATTR {
    CellRowOf<decltype(type)>(hidden, at, n, rows);
  });
}

void LstmCellGradRow(size_t hidden, size_t at, size_t n,
                     const LstmCellGradRows& rows) {
  WithFloatType(rows.in.gates.dtype(), [&](auto type) HWY_ATTR {
    CellGradRowOf<decltype(type)>(hidden, at, n, rows);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace thimble::kernels {
namespace {

// Calls run(row, first, count) for blocks of all rows, spread over the threads.
template <typename F>
void ForBlocks(const LstmShape& shape, const KernelContext& context,
               const F& run) {
  constexpr auto kBlock = static_cast<int64_t>(kLstmBlock);
  const int64_t blocks = (shape.hidden + kBlock - 1) / kBlock;
  context.pool->ParallelFor(
      shape.rows * blocks, [&](int64_t begin, int64_t end, int) {
        for (int64_t b = begin; b < end; ++b) {
          const int64_t first = b % blocks * kBlock;
          run(b / blocks, static_cast<size_t>(first),
              static_cast<size_t>(std::min(kBlock, shape.hidden - first)));
        }
      });
}

}  // namespace

void LstmCell(const LstmShape& shape, const LstmCellInput& in,
              const LstmCellOutput& out, const KernelContext& context) {
  const auto run = THIMBLE_DISPATCH(LstmCellRow).Get();
  const LstmCellRows rows = {in, out};
  TH_CHECK(rows.IsStoredAlike());
  ForBlocks(shape, context, [&](int64_t row, size_t first, size_t count) {
    run(static_cast<size_t>(shape.hidden), first, count,
        rows.From(row, shape.hidden));
  });
}

void LstmCellGrad(const LstmShape& shape, const LstmCellGradInput& in,
                  const LstmCellGradOutput& out, const KernelContext& context) {
  const auto run = THIMBLE_DISPATCH(LstmCellGradRow).Get();
  const LstmCellGradRows rows = {in, out};
  TH_CHECK(rows.IsStoredAlike());
  ForBlocks(shape, context, [&](int64_t row, size_t first, size_t count) {
    run(static_cast<size_t>(shape.hidden), first, count,
        rows.From(row, shape.hidden));
  });
}

}  // namespace thimble::kernels
#endif  // HWY_ONCE
