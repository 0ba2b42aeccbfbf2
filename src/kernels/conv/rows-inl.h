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
  WithStorageType(input.dtype, [&](auto type) HWY_ATTR {
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
    CopyRowAs(n, static_cast<const T*>(input.data) + offset, to,
              [&](V v)
                  HWY_ATTR { return Activate<kPrologue>(d, v, scale, shift); });
  });
}

HWY_INLINE bool IsPlain(const Conv2dInput& input) {
  return input.dtype == DType::kF32 && input.scale == nullptr;
}

// The same values: where they lie, if they lie there as they are, else in
// `line`.
HWY_INLINE const float* RowValues(const Conv2dInput& input, int64_t channel,
                                  int64_t offset, int64_t n, float* line) {
  if (IsPlain(input)) {
    return static_cast<const float*>(input.data) + offset;
  }
  ReadRow(input, channel, offset, n, line);
  return line;
}

// ---- Out

struct RowSums {
  double first = 0.0;
  double second = 0.0;
};

// Sums over [0, n) of what add(value, other, sum1, sum2) adds, in four chains
// of vectors. Past the end value is `rest` and other is 0: add must add nothing
// for them.
template <typename T, typename F>
HWY_INLINE RowSums SumRow(int64_t n, const float* values, const T* other,
                          float rest, const F& add) {
  const D d;
  const int64_t lanes = LaneCount();
  V a0 = hn::Zero(d), a1 = a0, a2 = a0, a3 = a0;
  V b0 = a0, b1 = a0, b2 = a0, b3 = a0;
  const auto at = [&](int64_t i, V& a, V& b) HWY_ATTR {
    add(hn::LoadU(d, values + i), LoadAs(d, other + i), a, b);
  };
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    at(i, a0, b0);
    at(i + lanes, a1, b1);
    at(i + 2 * lanes, a2, b2);
    at(i + 3 * lanes, a3, b3);
  }
  for (; i + lanes <= n; i += lanes) at(i, a0, b0);
  if (i < n) {
    const auto left = static_cast<size_t>(n - i);
    const V last = hn::IfThenElse(
        hn::FirstN(d, left), LoadFirst(d, values + i, left), hn::Set(d, rest));
    add(last, LoadFirstAs(d, other + i, left), a1, b1);
  }
  const V a = hn::Add(hn::Add(a0, a1), hn::Add(a2, a3));
  const V b = hn::Add(hn::Add(b0, b1), hn::Add(b2, b3));
  return {hn::GetLane(hn::SumOfLanes(d, a)), hn::GetLane(hn::SumOfLanes(d, b))};
}

// A first pass finds a shift near the mean; the second sums the deviations from
// it, so that the shift's rounding error cancels.
void MergeMoments(int64_t n, const float* values, conv::Partial& partial) {
  const auto count = static_cast<double>(n);
  const RowSums sum =
      SumRow(n, values, values, 0.0f,
             [](V v, V, V& a, V&) HWY_ATTR { a = hn::Add(a, v); });
  const auto shift = static_cast<float>(sum.first / count);
  const V center = hn::Set(D(), shift);
  const RowSums off =
      SumRow(n, values, values, shift, [center](V v, V, V& a, V& b) HWY_ATTR {
        const V deviation = hn::Sub(v, center);
        a = hn::Add(a, deviation);
        b = hn::MulAdd(deviation, deviation, b);
      });
  double m2 = off.second - off.first * off.first / count;
  if (m2 < 0.0) m2 = 0.0;  // a NaN stays
  partial.Merge(count, shift + off.first / count, m2);
}

// The gradient's way through relu(x * scale + shift).
template <typename T>
void MaskRow(const conv::Sink& sink, int64_t channel, const T* x, int64_t n,
             float* values) {
  const D d;
  const V scale = hn::Set(d, sink.scale[channel]);
  const V shift = hn::Set(d, sink.shift[channel]);
  MapRow(n, x, values, [&](V v, V at) HWY_ATTR {
    const V u = hn::MulAdd(at, scale, shift);
    return hn::IfThenElseZero(hn::Gt(u, hn::Zero(d)), v);
  });
}

template <typename T>
void AddSums(const conv::Sink& sink, int64_t channel, const T* x, int64_t n,
             const float* values, conv::Partial& partial) {
  const D d;
  const V center = hn::Set(d, sink.mean[channel]);
  const V inverse = hn::Set(d, sink.inv_std[channel]);
  const RowSums sums =
      SumRow(n, values, x, 0.0f, [&](V v, V at, V& a, V& b) HWY_ATTR {
        a = hn::Add(a, v);
        b = hn::MulAdd(v, hn::Mul(hn::Sub(at, center), inverse), b);
      });
  partial.first += sums.first;
  partial.second += sums.second;
}

// Elements [offset, offset + n) of the result, all of one channel. Destroys
// `values`. `partial` is the channel's, where the sink reduces.
void WriteRow(const conv::Sink& sink, int64_t channel, int64_t offset,
              int64_t n, float* values, conv::Partial* partial) {
  const bool reducing = sink.reducing();
  if (sink.x != nullptr) {
    WithFloatType(sink.x_dtype, [&](auto type) HWY_ATTR {
      using T = decltype(type);
      MaskRow(sink, channel, static_cast<const T*>(sink.x) + offset, n, values);
    });
  }
  WithFloatType(sink.dtype, [&](auto type) HWY_ATTR {
    using T = decltype(type);
    const D d;
    if (sink.residual != nullptr) {
      MapRow(n, static_cast<const T*>(sink.residual) + offset, values,
             [](V v, V r) HWY_ATTR { return hn::Add(v, r); });
    }
    T* to = static_cast<T*>(sink.data) + offset;
    CopyRowAs(n, values, to, [](V v) HWY_ATTR { return v; });
    if (reducing && sink.dtype != DType::kF32) {
      MapRow(n, values, values,
             [&](V v, V) HWY_ATTR { return RoundTo(d, T(), v); });
    }
  });
  if (sink.moments) MergeMoments(n, values, *partial);
  if (sink.x != nullptr) {
    WithFloatType(sink.x_dtype, [&](auto type) HWY_ATTR {
      using T = decltype(type);
      AddSums(sink, channel, static_cast<const T*>(sink.x) + offset, n, values,
              *partial);
    });
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
