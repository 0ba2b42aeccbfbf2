// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/sparse/sparse_conv.cc"
#include "kernels/sparse/sparse_conv.h"

#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <algorithm>

#include "base/check.h"
#include "kernels/sparse/strip_weight-inl.h"
#include "kernels/sparse/strips-inl.h"
#include "kernels/sparse/taps-inl.h"
#include "kernels/sparse/taps_pass.h"
#include "kernels/sparse/taps_weight-inl.h"
#include "kernels/target.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {

void RunSparseTaps(const sparse::TapsPass& pass, const sparse::SumCall& call,
                   const KernelContext& context) {
  SumRows<TapsWay>(pass, call, context);
}

void RunSparseTapsWeight(const sparse::TapsWeightPass& pass,
                         const sparse::WeightCall& call,
                         const KernelContext& context) {
  SumWeights<TapsWeightWay>(pass, call, context);
}

}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace thimble::kernels::sparse {

// Targets differ in whether they have strips, and of how many lanes.
int64_t SumFloats(const Conv2dShape& shape, bool forward) {
  int64_t floats = MakeTapsPass(shape, forward).Floats();
  for (int64_t lanes : {8, 16}) {
    StripPass strips;
    if (MakeStripPass(shape, forward, lanes, strips)) {
      floats = std::max(floats, strips.Floats());
    }
  }
  return floats;
}

int64_t WeightFloats(const Conv2dShape& shape) {
  int64_t floats = MakeTapsWeightPass(shape).Floats();
  for (int64_t lanes : {8, 16}) {
    StripWeightPass strips;
    if (MakeStripWeightPass(shape, lanes, strips)) {
      floats = std::max(floats, strips.Floats());
    }
  }
  return floats;
}

}  // namespace thimble::kernels::sparse

namespace thimble::kernels {
namespace {

// The pattern's matrix is the shape's weight.
void CheckPattern(const Conv2dShape& shape, const Pattern& pattern) {
  TH_CHECK(shape.blocks.has_value() && pattern.block == *shape.blocks);
  const int64_t taps = shape.kernel_h * shape.kernel_w;
  TH_CHECK(pattern.matrix.rows * pattern.block.outputs == shape.out_channels);
  TH_CHECK(pattern.matrix.columns * pattern.block.inputs ==
           shape.in_channels * taps);
}

}  // namespace

void sparse::RunSum(const Conv2dShape& shape, bool forward, int64_t images,
                    const Conv2dInput& input, const ConstTensor& weights,
                    const conv::Sink& sink, const KernelContext& context) {
  CheckPattern(shape, *weights.pattern());
  const int64_t pixels = forward ? shape.out_height() * shape.out_width()
                                 : shape.in_height * shape.in_width;
  const SumCall call{images, input, weights, sink, pixels};
  if (THIMBLE_DISPATCH(RunStrips).Get()(shape, forward, call, context)) return;
  THIMBLE_DISPATCH(RunSparseTaps)
      .Get()(MakeTapsPass(shape, forward), call, context);
}

void sparse::RunWeightGrad(const Conv2dShape& shape, int64_t images,
                           const Conv2dInput& x, const ConstTensor& grad_y,
                           const Conv2dGradWeightTarget& grad_w,
                           const KernelContext& context) {
  CheckPattern(shape, *grad_w.pattern);
  const ConstTensor to = grad_w.to.values();
  const ValueTarget target{grad_w.to.values(),
                           grad_w.accumulate ? to : ConstTensor::None(),
                           grad_w.pieces};
  const WeightCall call{images, x, grad_y, *grad_w.pattern, target};
  if (THIMBLE_DISPATCH(RunStripWeights).Get()(shape, call, context)) return;
  THIMBLE_DISPATCH(RunSparseTapsWeight)
      .Get()(MakeTapsWeightPass(shape), call, context);
}

}  // namespace thimble::kernels
#endif  // HWY_ONCE
