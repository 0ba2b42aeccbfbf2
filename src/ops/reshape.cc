// SPDX-License-Identifier: Apache-2.0
#include "ops/reshape.h"

#include <fmt/format.h>

namespace thimble::ops {

Result<std::vector<ValueSpec>> Flatten::Infer(
    std::span<const ValueSpec> inputs) const {
  const ValueSpec& x = inputs[0];
  if (x.shape.rank() < 2) {
    return Status::Usage(
        fmt::format("needs a batch of something, got {}", x.shape.ToString()));
  }
  return std::vector<ValueSpec>{
      {{x.shape[0], x.shape.elements_from(1)}, x.storage, x.axis}};
}

void Flatten::Gradient(GradientContext& context) const {
  if (!context.wanted[0]) return;
  const Shape shape = context.emit.graph().value(context.inputs[0]).spec.shape;
  context.grad_inputs[0] = context.emit.Emit(
      context.name + ".grad_x", std::make_shared<Reshape>(shape),
      {context.grad_outputs[0]}, Role::kActivationGradient)[0];
}

Result<std::vector<ValueSpec>> Reshape::Infer(
    std::span<const ValueSpec> inputs) const {
  if (inputs[0].shape.elements() != shape_.elements()) {
    return Status::Usage(fmt::format(
        "cannot see {} as {}", inputs[0].shape.ToString(), shape_.ToString()));
  }
  return std::vector<ValueSpec>{{shape_, inputs[0].storage, inputs[0].axis}};
}

}  // namespace thimble::ops
