// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/update/update.cc"
#include "kernels/update/update.h"

#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "base/check.h"
#include "kernels/elementwise/finite-inl.h"
#include "kernels/pieces-inl.h"
#include "kernels/simd-inl.h"
#include "kernels/target.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

// The step's numbers, one in all lanes each.
struct SgdLanes {
  explicit SgdLanes(const SgdStep& step)
      : rate(hn::Set(D(), step.learning_rate)),
        momentum(hn::Set(D(), step.momentum)),
        decay(hn::Set(D(), step.weight_decay)),
        scale(hn::Set(D(), step.gradient_scale)) {}
  // A scale of 1 leaves every bit as it is.
  HWY_INLINE V Gradient(V param, V grad) const {
    return hn::MulAdd(decay, param, hn::Mul(grad, scale));
  }
  V rate;
  V momentum;
  V decay;
  V scale;
};

// Without velocity: the new parameters.
HWY_INLINE V PlainStep(const SgdLanes& s, V param, V grad) {
  return hn::NegMulAdd(s.rate, s.Gradient(param, grad), param);
}

// With velocity, which is brought up to date: the new parameters.
template <bool kNesterov>
HWY_INLINE V MomentumStep(const SgdLanes& s, V param, V grad, V& velocity) {
  const V g = s.Gradient(param, grad);
  velocity = hn::MulAdd(s.momentum, velocity, g);
  const V direction =
      kNesterov ? hn::MulAdd(s.momentum, velocity, g) : velocity;
  return hn::NegMulAdd(s.rate, direction, param);
}

void SgdPlain(size_t n, const SgdStep& step, float* param, const float* grad) {
  const D d;
  const size_t lanes = hn::Lanes(d);
  const SgdLanes s(step);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const V p = hn::LoadU(d, param + i);
    hn::StoreU(PlainStep(s, p, hn::LoadU(d, grad + i)), d, param + i);
  }
  if (i == n) return;
  const V p = LoadFirst(d, param + i, n - i);
  const V g = LoadFirst(d, grad + i, n - i);
  StoreFirst(PlainStep(s, p, g), d, param + i, n - i);
}

template <bool kNesterov>
HWY_INLINE void SgdWithVelocity(size_t n, const SgdStep& step, float* param,
                                const float* grad, float* velocity) {
  const D d;
  const size_t lanes = hn::Lanes(d);
  const SgdLanes s(step);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    V v = hn::LoadU(d, velocity + i);
    const V p = MomentumStep<kNesterov>(s, hn::LoadU(d, param + i),
                                        hn::LoadU(d, grad + i), v);
    hn::StoreU(v, d, velocity + i);
    hn::StoreU(p, d, param + i);
  }
  if (i == n) return;
  V v = LoadFirst(d, velocity + i, n - i);
  const V p = MomentumStep<kNesterov>(s, LoadFirst(d, param + i, n - i),
                                      LoadFirst(d, grad + i, n - i), v);
  StoreFirst(v, d, velocity + i, n - i);
  StoreFirst(p, d, param + i, n - i);
}

void SgdPiece(int64_t n, const SgdStep& step, float* param, const float* grad,
              float* velocity) {
  const auto count = static_cast<size_t>(n);
  if (velocity == nullptr) {
    SgdPlain(count, step, param, grad);
  } else if (step.nesterov) {
    SgdWithVelocity<true>(count, step, param, grad, velocity);
  } else {
    SgdWithVelocity<false>(count, step, param, grad, velocity);
  }
}

// What an error of the parameter adds to the velocity.
float FeedbackFactor(const SgdStep& step) {
  const double rate = step.next_learning_rate > 0.0f ? step.next_learning_rate
                                                     : step.learning_rate;
  // A rate of 0 changes no parameter, so there is no error either.
  if (rate == 0.0) return 0.0f;
  const double momentum = step.momentum;
  const double factor = (1.0 - 1.0 / momentum) / rate;
  return static_cast<float>(step.nesterov ? factor / momentum : factor);
}

// Hands on what storing the parameters as T will take from them.
template <typename T>
void FeedBack(int64_t n, float factor, const float* param, float* velocity) {
  const V f = hn::Set(D(), factor);
  const auto with_error = [f](V v, V p) HWY_ATTR {
    return hn::MulAdd(f, hn::Sub(p, RoundTo(D(), T(), p)), v);
  };
  MapRow(n, param, velocity, with_error);
}

// Stores a piece of parameters and velocity, as f32 at p and v.
void StoreStep(int64_t at, int64_t n, const SgdStep& step, const float* p,
               float* v, Tensor param, Tensor velocity) {
  if (step.rounding == Rounding::kFeedback) {
    if (param.dtype() == DType::kF16) {
      FeedBack<F16>(n, FeedbackFactor(step), p, v);
    } else if (param.dtype() == DType::kBF16) {
      FeedBack<BF16>(n, FeedbackFactor(step), p, v);
    }
  }
  StorePiece(p, at, n, {step.rounding, step.random}, param);
  StorePiece(v, at, n, {step.rounding, step.random.Next(1)}, velocity);
}

// Elements [first, last), first a multiple of kPiece.
void SgdRange(int64_t first, int64_t last, const SgdStep& step, Tensor param,
              ConstTensor grad, Tensor velocity) {
  float buffers[3][kPiece];
  const bool is_f32 = param.dtype() == DType::kF32 &&
                      grad.dtype() == DType::kF32 &&
                      velocity.dtype() == DType::kF32;
  const int64_t most = is_f32 ? last - first : kPiece;
  for (int64_t at = first; at < last; at += most) {
    const int64_t n = HWY_MIN(most, last - at);
    float* p = OpenPiece(param, at, n, buffers[0]);
    const float* g = LoadPiece(grad, at, n, buffers[1]);
    float* v = OpenPiece(velocity, at, n, buffers[2]);
    SgdPiece(n, step, p, g, v);
    StoreStep(at, n, step, p, v, param, velocity);
  }
}

// Of a gradient that comes in parts: the velocity with another one.
void FoldIntoVelocity(int64_t n, const SgdStep& step, SgdFold form,
                      const float* sums, const float* p, float* v) {
  const SgdLanes s(step);
  const auto count = static_cast<size_t>(n);
  if (form == SgdFold::kFirst) {
    Map(
        count,
        [&s](V velocity, V param, V sum) HWY_ATTR {
          return hn::MulAdd(s.momentum, velocity, s.Gradient(param, sum));
        },
        v, v, p, sums);
  } else {
    Map(
        count,
        [&s](V velocity, V sum)
            HWY_ATTR { return hn::MulAdd(s.scale, sum, velocity); },
        v, v, sums);
  }
}

bool FoldRange(int64_t first, int64_t n, const SgdStep& step, SgdFold form,
               bool look, const float* sums, Tensor param, Tensor velocity) {
  if (look && !AllFiniteRange(static_cast<size_t>(n), F32(sums))) return false;
  float buffers[2][kPiece];
  for (int64_t i = 0; i < n; i += kPiece) {
    const int64_t count = HWY_MIN(kPiece, n - i);
    const int64_t at = first + i;
    float* v = OpenPiece(velocity, at, count, buffers[1]);
    if (form == SgdFold::kWhole) {
      float* p = OpenPiece(param, at, count, buffers[0]);
      SgdPiece(count, step, p, sums + i, v);
      StoreStep(at, count, step, p, v, param, velocity);
      continue;
    }
    const float* p = form == SgdFold::kFirst
                         ? LoadPiece(param, at, count, buffers[0])
                         : nullptr;
    FoldIntoVelocity(count, step, form, sums + i, p, v);
    StorePiece(v, at, count, {step.rounding, step.random.Next(1)}, velocity);
  }
  return true;
}

// Elements [first, last), first a multiple of kPiece.
void ApplyRange(int64_t first, int64_t last, const SgdStep& step, Tensor param,
                Tensor velocity) {
  float buffers[2][kPiece];
  const SgdLanes s(step);
  for (int64_t at = first; at < last; at += kPiece) {
    const int64_t n = HWY_MIN(kPiece, last - at);
    float* p = OpenPiece(param, at, n, buffers[0]);
    float* v = OpenPiece(velocity, at, n, buffers[1]);
    MapRow(n, v, p, [&s](V weight, V direction) HWY_ATTR {
      return hn::NegMulAdd(s.rate, direction, weight);
    });
    if (step.rounding == Rounding::kFeedback) {
      StoreStep(at, n, step, p, v, param, velocity);
    } else {
      StorePiece(p, at, n, {step.rounding, step.random}, param);
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace thimble::kernels {
namespace {

// Calls body(first, last) for ranges that are whole vectors of any target and
// whole pieces, so that an element falls into the same ones for every thread
// count.
template <typename Body>
void ForUnits(int64_t n, const KernelContext& context, const Body& body) {
  constexpr int64_t kUnit = 4096;
  context.pool->ParallelFor(
      (n + kUnit - 1) / kUnit, [&](int64_t begin, int64_t end, int) {
        body(begin * kUnit, end * kUnit < n ? end * kUnit : n);
      });
}

}  // namespace

void SgdUpdate(int64_t n, const SgdStep& step, Tensor param, ConstTensor grad,
               Tensor velocity, const KernelContext& context) {
  TH_CHECK(step.rounding != Rounding::kFeedback ||
           (step.momentum > 0.0f && velocity.is_there()));
  const auto range = THIMBLE_DISPATCH(SgdRange).Get();
  ForUnits(n, context, [&](int64_t first, int64_t last) {
    range(first, last, step, param, grad, velocity);
  });
}

bool SgdFoldPiece(int64_t first, int64_t n, const SgdStep& step, SgdFold form,
                  bool look, const float* sums, Tensor param, Tensor velocity) {
  TH_CHECK(form == SgdFold::kWhole || velocity.is_there());
  return THIMBLE_DISPATCH(FoldRange).Get()(first, n, step, form, look, sums,
                                           param, velocity);
}

void SgdApply(int64_t n, const SgdStep& step, Tensor param, Tensor velocity,
              const KernelContext& context) {
  TH_CHECK(!step.nesterov && velocity.is_there());
  const auto range = THIMBLE_DISPATCH(ApplyRange).Get();
  ForUnits(n, context, [&](int64_t first, int64_t last) {
    range(first, last, step, param, velocity);
  });
}

}  // namespace thimble::kernels
#endif  // HWY_ONCE
