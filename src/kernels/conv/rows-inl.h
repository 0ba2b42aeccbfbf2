// SPDX-License-Identifier: Apache-2.0
//
// Rows of tensors on their way in and out of the convolution kernels: the only
// code that depends on storage types, prologue and epilogue. A row is any run
// of neighbouring elements of one channel. Included once per SIMD target, after
// <hwy/highway.h>; hence no `#pragma once`.
#if defined(THIMBLE_KERNELS_CONV_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef THIMBLE_KERNELS_CONV_ROWS_INL_H_
#undef THIMBLE_KERNELS_CONV_ROWS_INL_H_
#else
#define THIMBLE_KERNELS_CONV_ROWS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <type_traits>

#include "kernels/conv/operand.h"
#include "kernels/convert-inl.h"
#include "kernels/elements-inl.h"
#include "kernels/norm/rest-inl.h"
#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

// What becomes of a value on its way in.
enum class Prologue { kNone, kAffine, kRelu };

HWY_INLINE Prologue PrologueOf(const Conv2dInput& input) {
  if (input.scale == nullptr) return Prologue::kNone;
  return input.relu ? Prologue::kRelu : Prologue::kAffine;
}

template <Prologue kPrologue, class DV>
HWY_INLINE hn::Vec<DV> Activate(DV d, hn::Vec<DV> v, hn::Vec<DV> scale,
                                hn::Vec<DV> shift) {
  if constexpr (kPrologue == Prologue::kNone) {
    (void)d, (void)scale, (void)shift;
    return v;
  } else {
    const auto u = hn::MulAdd(v, scale, shift);
    if constexpr (kPrologue == Prologue::kAffine) return u;
    // The comparison, unlike Max, keeps a NaN: a diverged run must show.
    return hn::IfThenZeroElse(hn::Lt(u, hn::Zero(d)), u);
  }
}

// A channel's scale or shift, where there is one.
template <Prologue kPrologue, class DV>
HWY_INLINE hn::Vec<DV> Coefficient(DV d, const float* values, int64_t channel) {
  if constexpr (kPrologue == Prologue::kNone) {
    (void)values, (void)channel;
    return hn::Zero(d);
  } else {
    return hn::Set(d, values[channel]);
  }
}

// Calls f(T(), prologue as a constant) for the input's type and prologue.
template <typename F>
HWY_INLINE void WithInput(const Conv2dInput& input, const F& f) {
  WithStorageType(input.x, [&](auto type) HWY_ATTR {
    switch (PrologueOf(input)) {
      case Prologue::kNone:
        return f(type, std::integral_constant<Prologue, Prologue::kNone>());
      case Prologue::kAffine:
        return f(type, std::integral_constant<Prologue, Prologue::kAffine>());
      case Prologue::kRelu:
        return f(type, std::integral_constant<Prologue, Prologue::kRelu>());
    }
  });
}

// to[0, n) = the values of elements [offset, offset + n) of the tensor, all of
// one channel.
HWY_INLINE void ReadRow(const Conv2dInput& input, int64_t channel,
                        int64_t offset, int64_t n, float* to) {
  WithInput(input, [&](auto type, auto prologue) HWY_ATTR {
    using T = decltype(type);
    constexpr Prologue kPrologue = decltype(prologue)::value;
    const D d;
    const V scale = Coefficient<kPrologue>(d, input.scale, channel);
    const V shift = Coefficient<kPrologue>(d, input.shift, channel);
    CopyRowAs(n, input.x.As<T>() + offset, to, [&](V v) HWY_ATTR {
      return Activate<kPrologue>(d, v, scale, shift);
    });
  });
}

HWY_INLINE bool IsPlain(const Conv2dInput& input) {
  return input.x.dtype() == DType::kF32 && input.scale == nullptr;
}

// The same values: where they lie, if they lie there as they are, else in
// `line`.
HWY_INLINE const float* RowValues(const Conv2dInput& input, int64_t channel,
                                  int64_t offset, int64_t n, float* line) {
  if (IsPlain(input)) return input.x.f32() + offset;
  ReadRow(input, channel, offset, n, line);
  return line;
}

// ---- Out

struct RowSums {
  double first = 0.0;
  double second = 0.0;
};

// Passes over [0, n) by vectors, with two sums in four chains: f(whole, i,
// left, sum1, sum2) takes the vector at i, of which `left` lanes exist. Lanes
// past the end must add nothing.
template <typename F>
HWY_INLINE RowSums PassRow(int64_t n, const F& f) {
  const D d;
  const int64_t lanes = LaneCount();
  V a0 = hn::Zero(d), a1 = a0, a2 = a0, a3 = a0;
  V b0 = a0, b1 = a0, b2 = a0, b3 = a0;
  const std::true_type whole;
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    f(whole, i, lanes, a0, b0);
    f(whole, i + lanes, lanes, a1, b1);
    f(whole, i + 2 * lanes, lanes, a2, b2);
    f(whole, i + 3 * lanes, lanes, a3, b3);
  }
  for (; i + lanes <= n; i += lanes) f(whole, i, lanes, a0, b0);
  if (i < n) f(std::false_type(), i, n - i, a1, b1);
  const V a = hn::Add(hn::Add(a0, a1), hn::Add(a2, a3));
  const V b = hn::Add(hn::Add(b0, b1), hn::Add(b2, b3));
  return {hn::GetLane(hn::SumOfLanes(d, a)), hn::GetLane(hn::SumOfLanes(d, b))};
}

// What is there of a vector; zeros for the rest.
template <typename W, typename T>
HWY_INLINE V LoadLeft(W, const T* from, int64_t left) {
  if constexpr (W::value) return LoadAs(D(), from);
  return LoadFirstAs(D(), from, static_cast<size_t>(left));
}
template <typename W, typename T>
HWY_INLINE void StoreLeft(W, V v, T* to, int64_t left) {
  if constexpr (W::value) {
    StoreAs(v, D(), to);
  } else {
    StoreFirstAs(v, D(), to, static_cast<size_t>(left));
  }
}

// Of values that T holds exactly.
template <typename W, typename T>
HWY_INLINE void StoreLeftExact(W whole, V v, T* to, int64_t left) {
  if constexpr (W::value) {
    StoreExact(v, D(), to);
  } else {
    StoreLeft(whole, v, to, left);
  }
}

// values + residual, rounded, to `to` and back to values. The sum of them.
template <bool kResidual, typename T>
double WriteSum(int64_t n, const T* residual, float* values, T* to) {
  const D d;
  return PassRow(n,
                 [&](auto whole, int64_t i, int64_t left, V& a, V&) HWY_ATTR {
                   V v = LoadLeft(whole, values + i, left);
                   if constexpr (kResidual) {
                     v = hn::Add(v, LoadLeft(whole, residual + i, left));
                   }
                   v = RoundTo(d, T(), v);
                   StoreLeftExact(whole, v, to + i, left);
                   StoreLeft(whole, v, values + i, left);
                   a = hn::Add(a, v);
                 })
      .first;
}

// The sum gives a shift near the mean; a second pass sums the deviations from
// it, so that the shift's rounding error cancels.
void MergeMoments(int64_t n, const float* values, double sum,
                  conv::Partial& partial) {
  const auto count = static_cast<double>(n);
  const auto shift = static_cast<float>(sum / count);
  const V center = hn::Set(D(), shift);
  const RowSums off =
      PassRow(n, [&](auto whole, int64_t i, int64_t left, V& a, V& b) HWY_ATTR {
        V deviation = hn::Sub(LoadLeft(whole, values + i, left), center);
        if constexpr (!decltype(whole)::value) {
          const auto there = hn::FirstN(D(), static_cast<size_t>(left));
          deviation = hn::IfThenElseZero(there, deviation);
        }
        a = hn::Add(a, deviation);
        b = hn::MulAdd(deviation, deviation, b);
      });
  double m2 = off.second - off.first * off.first / count;
  if (m2 < 0.0) m2 = 0.0;  // a NaN stays
  partial.Merge(count, shift + off.first / count, m2);
}

// The gradient's way through relu(x * scale + shift), to `to` if there is one,
// and its two sums.
template <typename T, typename X>
void WriteMasked(const conv::Sink& sink, int64_t channel, int64_t n,
                 const float* values, const X* x, T* to,
                 conv::Partial& partial) {
  const D d;
  const V scale = hn::Set(d, sink.scale[channel]);
  const V shift = hn::Set(d, sink.shift[channel]);
  const V center = hn::Set(d, sink.mean[channel]);
  const V inverse = hn::Set(d, sink.inv_std[channel]);
  const RowSums sums =
      PassRow(n, [&](auto whole, int64_t i, int64_t left, V& a, V& b) HWY_ATTR {
        const V at = LoadLeft(whole, x + i, left);
        const V u = hn::MulAdd(at, scale, shift);
        V v = LoadLeft(whole, values + i, left);
        v = RoundTo(d, T(), hn::IfThenElseZero(hn::Gt(u, hn::Zero(d)), v));
        if (to != nullptr) StoreLeftExact(whole, v, to + i, left);
        a = hn::Add(a, v);
        b = hn::MulAdd(v, hn::Mul(hn::Sub(at, center), inverse), b);
      });
  partial.first += sums.first;
  partial.second += sums.second;
}

// The same gradient's way on through the batch norm. Rounded in between: a
// plan that stores it there must give the same.
template <typename T, typename X>
void WriteThroughNorm(const conv::Sink& sink, int64_t channel, int64_t n,
                      const float* values, const X* x, const T* residual,
                      T* to) {
  const D d;
  const V scale = hn::Set(d, sink.scale[channel]);
  const V shift = hn::Set(d, sink.shift[channel]);
  const NormGradRest rest(*sink.known_sums, channel, sink.count);
  PassRow(n, [&](auto whole, int64_t i, int64_t left, V&, V&) HWY_ATTR {
    const V at = LoadLeft(whole, x + i, left);
    const V u = hn::MulAdd(at, scale, shift);
    V v = LoadLeft(whole, values + i, left);
    v = RoundTo(d, T(), hn::IfThenElseZero(hn::Gt(u, hn::Zero(d)), v));
    v = rest.At(v, at);
    if (residual != nullptr) {
      v = hn::Add(v, LoadLeft(whole, residual + i, left));
    }
    StoreLeft(whole, v, to + i, left);
  });
}

// Where element `offset` of a tensor lies, if there is one.
template <typename T>
HWY_INLINE T* ElementAt(T* data, int64_t offset) {
  return data == nullptr ? nullptr : data + offset;
}

// Elements [offset, offset + n) of the result, all of one channel. Destroys
// `values`. `partial` is the channel's, where the sink reduces.
void WriteRow(const conv::Sink& sink, int64_t channel, int64_t offset,
              int64_t n, float* values, conv::Partial* partial) {
  WithFloatType(sink.to.dtype(), [&](auto type) HWY_ATTR {
    using T = decltype(type);
    T* to = ElementAt(sink.to.As<T>(), offset);
    const T* residual = ElementAt(sink.residual.As<T>(), offset);
    if (sink.x.is_there()) {
      WithFloatType(sink.x.dtype(), [&](auto x_type) HWY_ATTR {
        using X = decltype(x_type);
        const X* x = sink.x.As<X>() + offset;
        if (sink.known_sums == nullptr) {
          WriteMasked(sink, channel, n, values, x, to, *partial);
        } else {
          WriteThroughNorm(sink, channel, n, values, x, residual, to);
        }
      });
      return;
    }
    const double sum = residual == nullptr
                           ? WriteSum<false>(n, residual, values, to)
                           : WriteSum<true>(n, residual, values, to);
    if (sink.moments) MergeMoments(n, values, sum, *partial);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
