// SPDX-License-Identifier: Apache-2.0
#include "ops/layer_norm.h"

#include <fmt/format.h>

#include "base/check.h"
#include "kernels/layer_norm/layer_norm.h"
#include "ops/bound_op.h"
#include "ops/storage.h"

namespace thimble::ops {

Result<std::vector<ValueSpec>> LayerNorm::Infer(
    std::span<const ValueSpec> inputs) const {
  TH_RETURN_IF_ERROR(
      CheckFloats(inputs, {"x", Vector("gamma"), Vector("beta")}));
  const ValueSpec& x = inputs[kX];
  if (x.shape.rank() != 2) {
    return Status::Usage(
        fmt::format("needs rows [N, C], got {}", x.shape.ToString()));
  }
  for (const ValueSpec& other : inputs.subspan(1)) {
    if (other.shape.rank() != 1 || other.shape[0] != x.shape[1]) {
      return Status::Usage(
          fmt::format("needs parameters [C] for rows {}, got {}",
                      x.shape.ToString(), other.shape.ToString()));
    }
  }
  if (!(epsilon_ > 0.0f)) {
    return Status::Usage(fmt::format("needs epsilon > 0, got {}", epsilon_));
  }
  return std::vector<ValueSpec>{x};
}

void LayerNorm::Gradient(GradientContext& context) const {
  const auto made = context.emit.Emit(
      context.name + ".grad",
      std::make_shared<LayerNormGrad>(epsilon_, context.wanted[kX]),
      {context.inputs[kX], context.inputs[kGamma], context.grad_outputs[0]},
      Role::kActivationGradient);
  if (context.wanted[kGamma]) context.grad_inputs[kGamma] = made[0];
  if (context.wanted[kBeta]) context.grad_inputs[kBeta] = made[1];
  if (context.wanted[kX]) context.grad_inputs[kX] = made[2];
}

Result<std::vector<ValueSpec>> LayerNormGrad::Infer(
    std::span<const ValueSpec> inputs) const {
  TH_RETURN_IF_ERROR(CheckFloats(inputs, {"x", Vector("gamma"), "grad_y"}));
  const ValueSpec vector = {{inputs[kX].shape[1]}, DType::kF32};
  std::vector<ValueSpec> outputs = {vector, vector};
  if (with_grad_x_) outputs.push_back(inputs[kX]);
  return outputs;
}

Workspace LayerNormGrad::Scratch(std::span<const ValueSpec> inputs,
                                 std::span<const ValueSpec>) const {
  return kernels::LayerNormGradWorkspace(inputs[kX].shape[0],
                                         inputs[kX].shape[1]);
}

void LayerNorm::Run(const BoundOp& c, const RunContext& run) const {
  kernels::LayerNorm(run.Rows(c.in_spec(kX)), c.in_spec(kX).shape[1], epsilon_,
                     c.In(kX), c.In(kGamma).f32(), c.In(kBeta).f32(), c.Out(0),
                     c.kernel);
}

void LayerNormGrad::Run(const BoundOp& c, const RunContext& run) const {
  TH_CHECK((c.carried & 1) == (c.carried >> 1));  // one flag for both sums
  kernels::LayerNormGrad(run.Rows(c.in_spec(kX)), c.in_spec(kX).shape[1],
                         epsilon_, c.In(kX), c.In(kGamma).f32(), c.In(kGradY),
                         c.OutOrNone(2), c.Out(0).f32(), c.Out(1).f32(),
                         c.kernel, c.Adds(0, run));
}

}  // namespace thimble::ops
