// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/conv/conv.cc"
#include "kernels/conv/conv.h"

#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "kernels/conv/grad_weight-inl.h"
#include "kernels/conv/pass.h"
#include "kernels/conv/taps-inl.h"
#include "kernels/target.h"

#if HWY_ONCE
namespace thimble::kernels {
namespace {

Workspace PerThreadFloats(int64_t floats) {
  return {.per_thread = static_cast<size_t>(floats) * sizeof(float)};
}

}  // namespace

Workspace Conv2dForwardWorkspace(const Conv2dShape& shape) {
  return PerThreadFloats(conv::ForwardPass(shape).Floats());
}

void Conv2dForward(const Conv2dShape& shape, int64_t images, const float* x,
                   const float* w, float* y, const KernelContext& context) {
  THIMBLE_DISPATCH(RunTaps).Get()(conv::ForwardPass(shape), images, x, w, y,
                                  context);
}

Workspace Conv2dGradInputWorkspace(const Conv2dShape& shape) {
  return PerThreadFloats(conv::GradInputPass(shape).Floats());
}

void Conv2dGradInput(const Conv2dShape& shape, int64_t images,
                     const float* grad_y, const float* w, float* grad_x,
                     const KernelContext& context) {
  THIMBLE_DISPATCH(RunTaps).Get()(conv::GradInputPass(shape), images, grad_y, w,
                                  grad_x, context);
}

Workspace Conv2dGradWeightWorkspace(const Conv2dShape& shape) {
  return PerThreadFloats(conv::GradWeightPass(shape).Floats());
}

void Conv2dGradWeight(const Conv2dShape& shape, int64_t images, const float* x,
                      const float* grad_y, float* grad_w,
                      const KernelContext& context) {
  THIMBLE_DISPATCH(RunGradWeight)
      .Get()(conv::GradWeightPass(shape), images, x, grad_y, grad_w, context);
}

}  // namespace thimble::kernels
#endif  // HWY_ONCE
