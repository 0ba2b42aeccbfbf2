// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/norm/fused.cc"
#include "kernels/norm/fused.h"

#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <cmath>

#include "kernels/simd-inl.h"
#include "kernels/target.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {

#ifndef THIMBLE_KERNELS_NORM_GRAD_FACTORS_
#define THIMBLE_KERNELS_NORM_GRAD_FACTORS_
namespace norm {

// Of one channel: grad_x = grad * of_grad + offset − (x − mean) * of_x.
struct GradFactors {
  float of_grad = 0;
  float offset = 0;
  float of_x = 0;
  float mean = 0;
};

}  // namespace norm
#endif

namespace HWY_NAMESPACE {
namespace {

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

template <bool kOther>
HWY_INLINE void GradPlane(size_t n, const norm::GradFactors& f,
                          const float* grad, const float* x, const float* other,
                          float* grad_x) {
  const D d;
  const size_t lanes = hn::Lanes(d);
  const V of_grad = hn::Set(d, f.of_grad);
  const V offset = hn::Set(d, f.offset);
  const V of_x = hn::Set(d, f.of_x);
  const V mean = hn::Set(d, f.mean);
  const auto of = [&](V g, V v) HWY_ATTR {
    return hn::NegMulAdd(hn::Sub(v, mean), of_x,
                         hn::MulAdd(g, of_grad, offset));
  };
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    V sum = of(hn::LoadU(d, grad + i), hn::LoadU(d, x + i));
    if constexpr (kOther) sum = hn::Add(sum, hn::LoadU(d, other + i));
    hn::StoreU(sum, d, grad_x + i);
  }
  const size_t rest = n - i;
  if (rest == 0) return;
  V sum = of(LoadFirst(d, grad + i, rest), LoadFirst(d, x + i, rest));
  if constexpr (kOther) sum = hn::Add(sum, LoadFirst(d, other + i, rest));
  StoreFirst(sum, d, grad_x + i, rest);
}

}  // namespace

void GradPlaneAlone(size_t n, const norm::GradFactors& f, const float* grad,
                    const float* x, const float*, float* grad_x) {
  GradPlane<false>(n, f, grad, x, nullptr, grad_x);
}

void GradPlaneAndOther(size_t n, const norm::GradFactors& f, const float* grad,
                       const float* x, const float* other, float* grad_x) {
  GradPlane<true>(n, f, grad, x, other, grad_x);
}

}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace thimble::kernels {
namespace {

norm::GradFactors FactorsOf(const NormGradArguments& a, float epsilon,
                            double count, int64_t c) {
  const double inv_std =
      1.0 / std::sqrt(static_cast<double>(a.variance[c]) + epsilon);
  const double factor = a.gamma[c] * inv_std;
  return {
      .of_grad = static_cast<float>(factor),
      .offset = static_cast<float>(-factor * a.grad_beta[c] / count),
      .of_x = static_cast<float>(factor * inv_std * a.grad_gamma[c] / count),
      .mean = a.mean[c]};
}

}  // namespace

void NormFactors(int64_t channels, float epsilon, const float* mean,
                 const float* variance, const float* gamma, const float* beta,
                 float* scale, float* shift, float* inv_std) {
  for (int64_t c = 0; c < channels; ++c) {
    const double inverse =
        1.0 / std::sqrt(static_cast<double>(variance[c]) + epsilon);
    inv_std[c] = static_cast<float>(inverse);
    scale[c] = static_cast<float>(gamma[c] * inverse);
    shift[c] = static_cast<float>(beta[c] - mean[c] * (gamma[c] * inverse));
  }
}

void BatchNormGradApply(const BatchNormShape& shape, int64_t images,
                        float epsilon, const NormGradArguments& a,
                        const KernelContext& context) {
  const auto run = a.other == nullptr
                       ? THIMBLE_DISPATCH(GradPlaneAlone).Get()
                       : THIMBLE_DISPATCH(GradPlaneAndOther).Get();
  const auto count = static_cast<double>(images * shape.pixels);
  context.pool->ParallelFor(images * shape.channels, [&](int64_t begin,
                                                         int64_t end, int) {
    for (int64_t plane = begin; plane < end; ++plane) {
      const int64_t at = plane * shape.pixels;
      run(static_cast<size_t>(shape.pixels),
          FactorsOf(a, epsilon, count, plane % shape.channels), a.grad + at,
          a.x + at, a.other == nullptr ? nullptr : a.other + at, a.grad_x + at);
    }
  });
}

}  // namespace thimble::kernels
#endif  // HWY_ONCE
