// SPDX-License-Identifier: Apache-2.0
#include "ops/bias.h"

#include <fmt/format.h>

namespace thimble::ops {

Result<std::vector<ValueSpec>> Bias::Infer(
    std::span<const ValueSpec> inputs) const {
  const ValueSpec& x = inputs[0];
  const ValueSpec& bias = inputs[1];
  if (x.dtype != DType::kF32 || x.shape.rank() < 2 || !IsF32(bias, 1) ||
      x.shape[1] != bias.shape[0]) {
    return Status::Usage(fmt::format(
        "needs f32 values [N, C, ...] and a bias [C] of the same C, got {} and "
        "{}",
        x.shape.ToString(), bias.shape.ToString()));
  }
  return std::vector<ValueSpec>{x};
}

void Bias::Gradient(GradientContext& context) const {
  if (context.wanted[1]) {
    context.grad_inputs[1] = context.emit.Emit(
        context.name + ".grad_b", std::make_shared<BiasGrad>(),
        {context.grad_outputs[0]}, Role::kGradient)[0];
  }
  if (context.wanted[0]) context.grad_inputs[0] = context.grad_outputs[0];
}

Result<std::vector<ValueSpec>> BiasGrad::Infer(
    std::span<const ValueSpec> inputs) const {
  return std::vector<ValueSpec>{{{inputs[0].shape[1]}, DType::kF32, false}};
}

}  // namespace thimble::ops
