// SPDX-License-Identifier: Apache-2.0
//
// softmax-cross-entropy: logits [N, K] f32, labels [N] i32 -> the mean loss of
// the batch [1] f32 and the number of correct rows [1] i32. Backward reads the
// logits and the labels again and may overwrite the logits.
#pragma once

#include "graph/op.h"

namespace thimble::ops {

class SoftmaxCrossEntropy final : public OpDef {
 public:
  enum Input : uint32_t { kLogits, kLabels };

  std::string_view name() const override { return "softmax-cross-entropy"; }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  void Run(const BoundOp& c, const RunContext& run) const override;
  ForwardResult Forward(ForwardContext& context) const override;
  BackwardNeeds Needs() const override { return {.inputs = 0b11}; }
  void Gradient(GradientContext& context) const override;
  int64_t Flops(std::span<const ValueSpec> inputs,
                std::span<const ValueSpec> outputs) const override {
    return 4 * OpDef::Flops(inputs, outputs);
  }
  Workspace Scratch(std::span<const ValueSpec> inputs,
                    std::span<const ValueSpec> outputs) const override;
};

// logits, labels -> grad_logits, of the mean over the images of the step, times
// RunContext::loss_scale
class SoftmaxCrossEntropyGrad final : public OpDef {
 public:
  enum Input : uint32_t { kLogits, kLabels };

  std::string_view name() const override {
    return "softmax-cross-entropy-grad";
  }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  void Run(const BoundOp& c, const RunContext& run) const override;
  std::vector<InPlacePair> InPlace() const override { return {{kLogits, 0}}; }
  int64_t Flops(std::span<const ValueSpec> inputs,
                std::span<const ValueSpec> outputs) const override {
    return 4 * OpDef::Flops(inputs, outputs);
  }
};

}  // namespace thimble::ops
