// SPDX-License-Identifier: Apache-2.0
#include "ops/bias.h"

#include <fmt/format.h>

#include "base/check.h"
#include "kernels/elementwise/elementwise.h"
#include "ops/bound_op.h"
#include "ops/storage.h"

namespace thimble::ops {

Result<std::vector<ValueSpec>> Bias::Infer(
    std::span<const ValueSpec> inputs) const {
  const ValueSpec& x = inputs[kX];
  const ValueSpec& bias = inputs[kBias];
  TH_RETURN_IF_ERROR(CheckFloats(inputs, {"x", Vector("bias")}));
  if (x.shape.rank() < 2 || bias.shape.rank() != 1 ||
      x.shape[1] != bias.shape[0]) {
    return Status::Usage(fmt::format(
        "needs values [N, C, ...] and a bias [C] of the same C, got {} and "
        "{}",
        x.shape.ToString(), bias.shape.ToString()));
  }
  return std::vector<ValueSpec>{x};
}

void Bias::Gradient(GradientContext& context) const {
  if (context.wanted[kBias]) {
    context.grad_inputs[kBias] = context.emit.Emit(
        context.name + ".grad_b", std::make_shared<BiasGrad>(),
        {context.grad_outputs[0]}, Role::kGradient)[0];
  }
  if (context.wanted[kX]) context.grad_inputs[kX] = context.grad_outputs[0];
}

Result<std::vector<ValueSpec>> BiasGrad::Infer(
    std::span<const ValueSpec> inputs) const {
  TH_RETURN_IF_ERROR(CheckFloats(inputs, {"grad_y"}));
  return std::vector<ValueSpec>{{{inputs[0].shape[1]}, DType::kF32}};
}

void Bias::Run(const BoundOp& c, const RunContext& run) const {
  const ValueSpec& x = c.in_spec(kX);
  kernels::BiasAdd(run.Rows(x), x.shape[1], x.shape.elements_from(2), c.In(kX),
                   c.In(kBias), c.Out(0), c.kernel);
}

void BiasGrad::Run(const BoundOp& c, const RunContext& run) const {
  const ValueSpec& x = c.in_spec(0);
  const kernels::ConstTensor sum_so_far =
      c.Adds(0, run) ? c.Out(0) : kernels::ConstTensor::None();
  kernels::BiasGrad(run.Rows(x), x.shape[1], x.shape.elements_from(2), c.In(0),
                    sum_so_far, c.Out(0), c.kernel);
}

}  // namespace thimble::ops
