// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/update/adam.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>

#include "base/check.h"
#include "kernels/pieces-inl.h"
#include "kernels/simd-inl.h"
#include "kernels/target.h"
#include "kernels/update/update.h"

#ifndef THIMBLE_KERNELS_UPDATE_ADAM_ONCE_
#define THIMBLE_KERNELS_UPDATE_ADAM_ONCE_
namespace thimble::kernels {
namespace {

// base^exponent by squaring: unlike libm's, the same bits everywhere.
double Power(double base, uint64_t exponent) {
  double result = 1.0;
  for (; exponent > 0; exponent >>= 1, base *= base) {
    if ((exponent & 1) != 0) result *= base;
  }
  return result;
}

// The step's numbers, as f32.
struct AdamNumbers {
  explicit AdamNumbers(const AdamStep& step) {
    const double correct1 = 1.0 - Power(step.beta1, step.number);
    const double correct2 = 1.0 - Power(step.beta2, step.number);
    const double decay = step.weight_decay;
    const double rate = step.learning_rate;
    scale = step.gradient_scale;
    grad_decay = static_cast<float>(step.decoupled ? 0.0 : decay);
    keep = static_cast<float>(step.decoupled ? 1.0 - rate * decay : 1.0);
    new1 = static_cast<float>(1.0 - step.beta1);
    keep2 = static_cast<float>(step.beta2);
    new2 = static_cast<float>(1.0 - step.beta2);
    rate1 = static_cast<float>(rate / correct1);
    root2 = static_cast<float>(1.0 / std::sqrt(correct2));
    epsilon = static_cast<float>(step.epsilon);
  }
  float scale;       // of gradients
  float grad_decay;  // of the parameter, to be added to its gradient
  float keep;        // of the parameter, where decay is decoupled
  float new1;        // share of a gradient in the first moment
  float keep2, new2;
  float rate1;  // the rate over the first moment's correction
  float root2;  // 1 over the root of the second one's
  float epsilon;
};

// The scales that moments are read and written with.
struct MomentScales {
  float first = 1.0f;
  float second = 1.0f;
};

}  // namespace
}  // namespace thimble::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

// Calls f(at, n) for whole vectors, then for the rest.
template <typename F>
HWY_INLINE void MapVectors(int64_t n, const F& f) {
  const int64_t lanes = LaneCount();
  for (int64_t i = 0; i < n; i += lanes) f(i, HWY_MIN(lanes, n - i));
}

HWY_INLINE V LoadSome(const float* p, int64_t n) {
  return n == LaneCount() ? hn::LoadU(D(), p)
                          : LoadFirst(D(), p, static_cast<size_t>(n));
}
HWY_INLINE void StoreSome(V v, float* p, int64_t n) {
  if (n == LaneCount()) {
    hn::StoreU(v, D(), p);
  } else {
    StoreFirst(v, D(), p, static_cast<size_t>(n));
  }
}

void Multiply(int64_t n, float factor, float* values) {
  const V f = hn::Set(D(), factor);
  MapVectors(n, [=](int64_t i, int64_t some) HWY_ATTR {
    StoreSome(hn::Mul(LoadSome(values + i, some), f), values + i, some);
  });
}

// The moments after a gradient.
void NextMoments(int64_t n, const AdamNumbers& a, const float* param,
                 const float* grad, float* first, float* second) {
  const D d;
  const V scale = hn::Set(d, a.scale), decay = hn::Set(d, a.grad_decay);
  const V new1 = hn::Set(d, a.new1), keep2 = hn::Set(d, a.keep2);
  const V new2 = hn::Set(d, a.new2);
  MapVectors(n, [=](int64_t i, int64_t some) HWY_ATTR {
    const V m = LoadSome(first + i, some), v = LoadSome(second + i, some);
    const V g = hn::MulAdd(decay, LoadSome(param + i, some),
                           hn::Mul(LoadSome(grad + i, some), scale));
    StoreSome(hn::MulAdd(new1, hn::Sub(g, m), m), first + i, some);
    StoreSome(hn::MulAdd(hn::Mul(new2, g), g, hn::Mul(keep2, v)), second + i,
              some);
  });
}

void NextParameters(int64_t n, const AdamNumbers& a, const float* first,
                    const float* second, float* param) {
  const D d;
  const V keep = hn::Set(d, a.keep), rate = hn::Set(d, a.rate1);
  const V root = hn::Set(d, a.root2), epsilon = hn::Set(d, a.epsilon);
  MapVectors(n, [=](int64_t i, int64_t some) HWY_ATTR {
    const V p = hn::Mul(LoadSome(param + i, some), keep);
    const V below =
        hn::MulAdd(hn::Sqrt(LoadSome(second + i, some)), root, epsilon);
    const V step = hn::Div(LoadSome(first + i, some), below);
    StoreSome(hn::NegMulAdd(rate, step, p), param + i, some);
  });
}

// The largest magnitude as bits, whose order is that of positive numbers, with
// NaNs above infinity.
uint32_t LargestBits(int64_t n, const float* values) {
  const hn::RebindToUnsigned<D> du;
  auto most = hn::Zero(du);
  MapVectors(n, [&](int64_t i, int64_t some) HWY_ATTR {
    const auto bits = hn::BitCast(du, hn::Abs(LoadSome(values + i, some)));
    most = hn::Max(most, bits);
  });
  HWY_ALIGN uint32_t lanes[hn::MaxLanes(du)];
  hn::Store(most, du, lanes);
  uint32_t result = 0;
  for (size_t i = 0; i < hn::Lanes(du); ++i) result = HWY_MAX(result, lanes[i]);
  return result;
}

// Scaled second moments for f16: what is above 0 stays at its least value.
void KeepAboveZero(int64_t n, float* values) {
  const D d;
  const V least = hn::Set(d, 0x1p-24f);
  MapVectors(n, [=](int64_t i, int64_t some) HWY_ATTR {
    const V v = LoadSome(values + i, some);
    // A NaN is neither: it stays.
    const auto small = hn::And(hn::Gt(v, hn::Zero(d)), hn::Lt(v, least));
    StoreSome(hn::IfThenElse(small, least, v), values + i, some);
  });
}

// Moments of a piece, as f32.
struct OpenMoments {
  OpenMoments(const AdamMoments& moments, const MomentScales& scales,
              int64_t at, int64_t n, float (*buffers)[kPiece])
      : first(OpenPiece(moments.first, at, n, buffers[0])),
        second(OpenPiece(moments.second, at, n, buffers[1],
                         BlockCoding::kSquareRoot)) {
    if (moments.first.dtype() != DType::kF16) return;
    Multiply(n, scales.first, first);
    Multiply(n, scales.second, second);
  }
  float* first;
  float* second;
};

// Elements [first, last), first a multiple of kPiece.
void AdamRange(int64_t first, int64_t last, const AdamStep& step,
               const AdamNumbers& numbers, Tensor param, ConstTensor grad,
               const AdamMoments& moments, const MomentScales& was,
               const MomentScales& will_be) {
  float buffers[4][kPiece];
  const bool scaled = moments.first.dtype() == DType::kF16;
  for (int64_t at = first; at < last; at += kPiece) {
    const int64_t n = HWY_MIN(kPiece, last - at);
    float* p = OpenPiece(param, at, n, buffers[0]);
    const float* g = LoadPiece(grad, at, n, buffers[1]);
    const OpenMoments open(moments, was, at, n, buffers + 2);
    NextMoments(n, numbers, p, g, open.first, open.second);
    NextParameters(n, numbers, open.first, open.second, p);
    if (scaled) {
      Multiply(n, 1.0f / will_be.first, open.first);
      Multiply(n, 1.0f / will_be.second, open.second);
      KeepAboveZero(n, open.second);
    }
    StorePiece(p, at, n, {step.rounding, step.random}, param);
    StorePiece(open.first, at, n, {step.rounding, step.random.Next(1)},
               moments.first);
    StorePiece(open.second, at, n, {step.rounding, step.random.Next(2)},
               moments.second, BlockCoding::kSquareRoot);
  }
}

// What the moments will be at most, in bits. Nothing is stored.
void AdamLargest(int64_t first, int64_t last, const AdamNumbers& numbers,
                 ConstTensor param, ConstTensor grad,
                 const AdamMoments& moments, const MomentScales& was,
                 uint32_t& largest_first, uint32_t& largest_second) {
  float buffers[4][kPiece];
  for (int64_t at = first; at < last; at += kPiece) {
    const int64_t n = HWY_MIN(kPiece, last - at);
    const float* p = LoadPiece(param, at, n, buffers[0]);
    const float* g = LoadPiece(grad, at, n, buffers[1]);
    const OpenMoments open(moments, was, at, n, buffers + 2);
    NextMoments(n, numbers, p, g, open.first, open.second);
    largest_first = HWY_MAX(largest_first, LargestBits(n, open.first));
    largest_second = HWY_MAX(largest_second, LargestBits(n, open.second));
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace thimble::kernels {
namespace {

void RaiseTo(std::atomic<uint32_t>& most, uint32_t value) {
  uint32_t now = most.load(std::memory_order_relaxed);
  while (now < value && !most.compare_exchange_weak(now, value)) {
  }
}

// 1 / s, s = 2^floor(log2(2^15 / largest)). Bounded, so that both are normal
// f32.
float ScaleFor(uint32_t largest_bits) {
  const auto largest = std::bit_cast<float>(largest_bits);
  if (largest == 0.0f || !std::isfinite(largest)) return 1.0f;
  int exponent = 0;  // largest in [2^(exponent-1), 2^exponent)
  const bool is_power = std::frexp(largest, &exponent) == 0.5f;
  const int power = 15 - (is_power ? exponent - 1 : exponent);
  return std::ldexp(1.0f, -(power < 126 ? power : 126));
}

}  // namespace

void AdamUpdate(int64_t n, const AdamStep& step, Tensor param, ConstTensor grad,
                const AdamMoments& moments, const KernelContext& context) {
  TH_CHECK(step.rounding != Rounding::kFeedback && step.number > 0);
  TH_CHECK(moments.first.dtype() == moments.second.dtype());
  const AdamNumbers numbers(step);
  // Elements per unit of work, whole pieces.
  constexpr int64_t kUnit = 4096;
  const int64_t units = (n + kUnit - 1) / kUnit;
  const auto end_of = [n](int64_t unit) {
    return unit * kUnit < n ? unit * kUnit : n;
  };
  const bool scaled = moments.first.dtype() == DType::kF16;
  MomentScales was, will_be;
  if (scaled) {
    was = {*moments.first_scale, *moments.second_scale};
    std::atomic<uint32_t> first{0}, second{0};
    const auto largest = THIMBLE_DISPATCH(AdamLargest).Get();
    context.pool->ParallelFor(units, [&](int64_t begin, int64_t end, int) {
      uint32_t own_first = 0, own_second = 0;
      largest(begin * kUnit, end_of(end), numbers, param, grad, moments, was,
              own_first, own_second);
      RaiseTo(first, own_first);
      RaiseTo(second, own_second);
    });
    will_be = {ScaleFor(first.load()), ScaleFor(second.load())};
  }
  const auto range = THIMBLE_DISPATCH(AdamRange).Get();
  context.pool->ParallelFor(units, [&](int64_t begin, int64_t end, int) {
    range(begin * kUnit, end_of(end), step, numbers, param, grad, moments, was,
          will_be);
  });
  if (!scaled) return;
  *moments.first_scale = will_be.first;
  *moments.second_scale = will_be.second;
}

}  // namespace thimble::kernels
#endif  // HWY_ONCE
