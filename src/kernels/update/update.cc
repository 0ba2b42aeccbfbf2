// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/update/update.cc"
#include "kernels/update/update.h"

#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "kernels/simd-inl.h"
#include "kernels/target.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// The step's numbers, one in all lanes each.
struct SgdLanes {
  explicit SgdLanes(const SgdStep& step)
      : rate(hn::Set(D(), step.learning_rate)),
        momentum(hn::Set(D(), step.momentum)),
        decay(hn::Set(D(), step.weight_decay)) {}
  V rate;
  V momentum;
  V decay;
};

// Without velocity: the new parameters.
HWY_INLINE V PlainStep(const SgdLanes& s, V param, V grad) {
  return hn::NegMulAdd(s.rate, hn::MulAdd(s.decay, param, grad), param);
}

// With velocity, which is brought up to date: the new parameters.
template <bool kNesterov>
HWY_INLINE V MomentumStep(const SgdLanes& s, V param, V grad, V& velocity) {
  const V g = hn::MulAdd(s.decay, param, grad);
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

void SgdMomentum(size_t n, const SgdStep& step, float* param, const float* grad,
                 float* velocity) {
  SgdWithVelocity<false>(n, step, param, grad, velocity);
}

void SgdNesterov(size_t n, const SgdStep& step, float* param, const float* grad,
                 float* velocity) {
  SgdWithVelocity<true>(n, step, param, grad, velocity);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace thimble::kernels {

void SgdUpdate(int64_t n, const SgdStep& step, Tensor param, ConstTensor grad,
               Tensor velocity, const KernelContext& context) {
  const float* grad_f32 = grad.f32();
  float* param_f32 = param.f32();
  float* velocity_f32 = velocity.f32();
  // Elements per block of work: whole vectors of any target, so that an element
  // falls into the same vector for every thread count.
  constexpr int64_t kBlock = 4096;
  const auto plain = THIMBLE_DISPATCH(SgdPlain).Get();
  const auto with_velocity = step.nesterov
                                 ? THIMBLE_DISPATCH(SgdNesterov).Get()
                                 : THIMBLE_DISPATCH(SgdMomentum).Get();
  context.pool->ParallelFor(
      (n + kBlock - 1) / kBlock, [&](int64_t begin, int64_t end, int) {
        const int64_t first = begin * kBlock;
        const int64_t last = end * kBlock < n ? end * kBlock : n;
        const auto count = static_cast<size_t>(last - first);
        if (velocity_f32 == nullptr) {
          plain(count, step, param_f32 + first, grad_f32 + first);
        } else {
          with_velocity(count, step, param_f32 + first, grad_f32 + first,
                        velocity_f32 + first);
        }
      });
}

}  // namespace thimble::kernels
#endif  // HWY_ONCE
