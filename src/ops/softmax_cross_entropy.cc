// SPDX-License-Identifier: Apache-2.0
#include "ops/softmax_cross_entropy.h"

#include <fmt/format.h>

#include "base/check.h"
#include "kernels/softmax/softmax.h"
#include "ops/bound_op.h"
#include "ops/storage.h"

namespace thimble::ops {
namespace {

// Of the loss and of its gradient, which read the same.
Status CheckRows(const ValueSpec& logits, const ValueSpec& labels) {
  TH_RETURN_IF_ERROR(CheckFloat("logits", logits));
  TH_RETURN_IF_ERROR(CheckStored("labels", labels, DType::kI32));
  if (logits.shape.rank() != 2 || labels.shape.rank() != 1 ||
      labels.shape[0] != logits.shape[0]) {
    return Status::Usage(fmt::format(
        "needs logits [N, K] and labels [N] of the same N, got {} and {}",
        logits.shape.ToString(), labels.shape.ToString()));
  }
  return Status::Ok();
}

}  // namespace

Result<std::vector<ValueSpec>> SoftmaxCrossEntropy::Infer(
    std::span<const ValueSpec> inputs) const {
  TH_RETURN_IF_ERROR(CheckRows(inputs[kLogits], inputs[kLabels]));
  return std::vector<ValueSpec>{{{1}, DType::kF32}, {{1}, DType::kI32}};
}

ForwardResult SoftmaxCrossEntropy::Forward(ForwardContext& context) const {
  return {context.emit.Emit(context.name, shared_from_this(),
                            {context.inputs.begin(), context.inputs.end()},
                            Role::kStatistic),
          {}};
}

void SoftmaxCrossEntropy::Gradient(GradientContext& context) const {
  if (!context.wanted[kLogits]) return;
  context.grad_inputs[kLogits] =
      context.emit.Emit(context.name + ".grad_logits",
                        std::make_shared<SoftmaxCrossEntropyGrad>(),
                        {context.inputs[kLogits], context.inputs[kLabels]},
                        Role::kActivationGradient)[0];
}

Workspace SoftmaxCrossEntropy::Scratch(std::span<const ValueSpec> inputs,
                                       std::span<const ValueSpec>) const {
  return kernels::SoftmaxCrossEntropyWorkspace(inputs[kLogits].shape[0]);
}

Result<std::vector<ValueSpec>> SoftmaxCrossEntropyGrad::Infer(
    std::span<const ValueSpec> inputs) const {
  TH_RETURN_IF_ERROR(CheckRows(inputs[kLogits], inputs[kLabels]));
  return std::vector<ValueSpec>{inputs[kLogits]};
}

void SoftmaxCrossEntropy::Run(const BoundOp& c, const RunContext& run) const {
  kernels::SoftmaxCrossEntropy(
      run.Rows(c.in_spec(kLogits)), c.in_spec(kLogits).shape[1], c.In(kLogits),
      c.In(kLabels).i32(), c.Out(0).f32(), c.Out(1).i32(), c.kernel);
}

void SoftmaxCrossEntropyGrad::Run(const BoundOp& c,
                                  const RunContext& run) const {
  // The step's loss is the mean over all of its microbatches.
  kernels::SoftmaxCrossEntropyGrad(
      run.Rows(c.in_spec(kLogits)), c.in_spec(kLogits).shape[1], c.In(kLogits),
      c.In(kLabels).i32(),
      1.0f / static_cast<float>(run.PartOf(c.in_spec(kLogits).axis).total),
      run.loss_scale, c.Out(0), c.kernel);
}

}  // namespace thimble::ops
