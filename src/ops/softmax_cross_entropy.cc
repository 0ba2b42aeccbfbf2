// SPDX-License-Identifier: Apache-2.0
#include "ops/softmax_cross_entropy.h"

#include <fmt/format.h>

#include "kernels/softmax/softmax.h"

namespace thimble::ops {

Result<std::vector<ValueSpec>> SoftmaxCrossEntropy::Infer(
    std::span<const ValueSpec> inputs) const {
  const ValueSpec& logits = inputs[0];
  const ValueSpec& labels = inputs[1];
  if (!IsF32(logits, 2) || labels.dtype != DType::kI32 ||
      labels.shape.rank() != 1 || labels.shape[0] != logits.shape[0]) {
    return Status::Usage(fmt::format(
        "needs f32 logits [N, K] and i32 labels [N] of the same N, got {} {} "
        "and {} {}",
        logits.shape.ToString(), DTypeName(logits.dtype),
        labels.shape.ToString(), DTypeName(labels.dtype)));
  }
  return std::vector<ValueSpec>{{{1}, DType::kF32, false},
                                {{1}, DType::kI32, false}};
}

ForwardResult SoftmaxCrossEntropy::Forward(ForwardContext& context) const {
  return {context.emit.Emit(context.name, shared_from_this(),
                            {context.inputs.begin(), context.inputs.end()},
                            Role::kStatistic),
          {}};
}

void SoftmaxCrossEntropy::Gradient(GradientContext& context) const {
  if (!context.wanted[0]) return;
  context.grad_inputs[0] = context.emit.Emit(
      context.name + ".grad_logits",
      std::make_shared<SoftmaxCrossEntropyGrad>(),
      {context.inputs[0], context.inputs[1]}, Role::kActivationGradient)[0];
}

Workspace SoftmaxCrossEntropy::Scratch(std::span<const ValueSpec> inputs,
                                       std::span<const ValueSpec>) const {
  return kernels::SoftmaxCrossEntropyWorkspace(inputs[0].shape[0]);
}

Result<std::vector<ValueSpec>> SoftmaxCrossEntropyGrad::Infer(
    std::span<const ValueSpec> inputs) const {
  return std::vector<ValueSpec>{inputs[0]};
}

}  // namespace thimble::ops
