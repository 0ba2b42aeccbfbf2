// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/sparse/sparse_linear.cc"
#include "kernels/sparse/sparse_linear.h"

#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "base/check.h"
#include "kernels/sparse/linear-inl.h"
#include "kernels/sparse/linear_pass.h"
#include "kernels/target.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {

void RunLinearSums(const sparse::LinearPass& pass,
                   const sparse::LinearSumCall& call,
                   const KernelContext& context) {
  SumRows<LinearWay>(pass, call, context);
}

void RunLinearWeights(const sparse::LinearWeightPass& pass,
                      const sparse::LinearWeightCall& call,
                      const KernelContext& context) {
  SumWeights<LinearWeightWay>(pass, call, context);
}

}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace thimble::kernels {
namespace {

// The pattern's matrix is the shape's weight.
void CheckPattern(const LinearShape& shape, const Pattern& pattern) {
  TH_CHECK(shape.blocks.has_value() && pattern.block == *shape.blocks);
  TH_CHECK(pattern.matrix.rows * pattern.block.outputs == shape.out);
  TH_CHECK(pattern.matrix.columns * pattern.block.inputs == shape.in);
}

int64_t BlocksOfRows(int64_t rows) {
  return conv::CeilDiv(rows, sparse::kLinearRows);
}

}  // namespace

int64_t sparse::LinearFloats(const LinearShape& shape, bool forward) {
  return MakeLinearPass(shape, forward).Floats();
}

int64_t sparse::LinearWeightFloats(const LinearShape& shape) {
  return MakeLinearWeightPass(shape).Floats();
}

void sparse::RunLinear(const LinearShape& shape, bool forward, int64_t rows,
                       const ConstTensor& x, const ConstTensor& weights,
                       const LinearTarget& y, const KernelContext& context) {
  CheckPattern(shape, *weights.pattern());
  TH_CHECK(!y.addend.is_there() || y.addend.dtype() == y.to.dtype());
  const Conv2dInput input{.x = x};
  const conv::Sink sink{.to = y.to, .residual = y.addend};
  const LinearSumCall call{{BlocksOfRows(rows), input, weights, sink, 1}, rows};
  THIMBLE_DISPATCH(RunLinearSums)
      .Get()(MakeLinearPass(shape, forward), call, context);
}

void sparse::RunLinearWeightGrad(const LinearShape& shape, int64_t rows,
                                 const ConstTensor& x,
                                 const ConstTensor& grad_y,
                                 const LinearTarget& grad_w,
                                 const KernelContext& context) {
  CheckPattern(shape, *grad_w.pattern);
  const ConstTensor addend = grad_w.addend.values();
  TH_CHECK(!addend.is_there() || addend.dtype() == grad_w.to.dtype());
  const Conv2dInput input{.x = x};
  const LinearWeightCall call{{BlocksOfRows(rows),
                               input,
                               grad_y,
                               *grad_w.pattern,
                               {grad_w.to.values(), addend, grad_w.pieces}},
                              rows};
  THIMBLE_DISPATCH(RunLinearWeights)
      .Get()(MakeLinearWeightPass(shape), call, context);
}

}  // namespace thimble::kernels
#endif  // HWY_ONCE
