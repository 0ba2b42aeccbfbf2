// SPDX-License-Identifier: Apache-2.0
//
// The last part of batch norm's gradient, element by element: the same
// arithmetic wherever it is done. Included once per SIMD target, after
// <hwy/highway.h>; hence no `#pragma once`.
#if defined(THIMBLE_KERNELS_NORM_REST_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef THIMBLE_KERNELS_NORM_REST_INL_H_
#undef THIMBLE_KERNELS_NORM_REST_INL_H_
#else
#define THIMBLE_KERNELS_NORM_REST_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "kernels/elements-inl.h"
#include "kernels/norm/norm.h"
#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

// gamma * inv_std * (d - grad_beta/m - (x - mean) * inv_std * grad_gamma/m) of
// channel c, m = count.
class NormGradRest {
 public:
  HWY_INLINE NormGradRest(const BatchNormGradSums& sums, int64_t c,
                          double count) {
    const D d;
    const double factor = static_cast<double>(sums.gamma[c]) * sums.inv_std[c];
    of_d_ = hn::Set(d, static_cast<float>(factor));
    offset_ =
        hn::Set(d, static_cast<float>(-factor * sums.grad_beta[c] / count));
    of_x_ = hn::Set(d, static_cast<float>(factor * sums.inv_std[c] *
                                          sums.grad_gamma[c] / count));
    center_ = hn::Set(d, sums.mean[c]);
  }

  HWY_INLINE V At(V d, V x) const {
    return hn::NegMulAdd(hn::Sub(x, center_), of_x_,
                         hn::MulAdd(d, of_d_, offset_));
  }

 private:
  V of_d_, offset_, of_x_, center_;
};

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
