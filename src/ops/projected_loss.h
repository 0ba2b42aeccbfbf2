// SPDX-License-Identifier: Apache-2.0
//
// projected-cross-entropy: x [T, C], w [V, C], labels [T] i32 -> the mean over
// tokens of the label-smoothed cross-entropy of x wᵀ [1] f32, the sum of −log
// p(label) [1] f32, and how many labels have the largest logit [1] i32
// (kernels/softmax/token_loss.h). Logits of kRowsAtOnce tokens are there at a
// time, in scratch: no [T, V] tensor exists. Backward reads x, w and labels and
// makes the logits again.
#pragma once

#include "graph/attributes.h"
#include "graph/op.h"

namespace thimble::ops {

// Rows whose logits are in scratch at once.
inline constexpr int64_t kRowsAtOnce = 128;

class ProjectedCrossEntropy final : public OpDef {
 public:
  enum Input : uint32_t { kX, kW, kLabels };
  enum Output : uint32_t { kLoss, kNll, kHits };

  explicit ProjectedCrossEntropy(double smoothing)
      : smoothing_(static_cast<float>(smoothing)) {}

  std::string_view name() const override { return "projected-cross-entropy"; }
  std::string Attributes() const override {
    return ListAttributes("smoothing", smoothing_);
  }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  void Run(const BoundOp& c, const RunContext& run) const override;
  ForwardResult Forward(ForwardContext& context) const override;
  BackwardNeeds Needs() const override { return {.inputs = 0b111}; }
  uint32_t TakesSparse() const override { return 1u << kW; }
  void Gradient(GradientContext& context) const override;
  int64_t Flops(std::span<const ValueSpec> inputs,
                std::span<const ValueSpec> outputs) const override;
  Workspace Scratch(std::span<const ValueSpec> inputs,
                    std::span<const ValueSpec> outputs) const override;

  float smoothing() const { return smoothing_; }

 private:
  float smoothing_;
};

// x, w, labels -> grad_w, grad_x of the mean over the tokens of the step, times
// RunContext::loss_scale. The gradient of the logits is stored as x is.
class ProjectedCrossEntropyGrad final : public OpDef {
 public:
  enum Input : uint32_t { kX, kW, kLabels };
  enum Output : uint32_t { kGradW, kGradX };

  explicit ProjectedCrossEntropyGrad(float smoothing) : smoothing_(smoothing) {}

  std::string_view name() const override {
    return "projected-cross-entropy-grad";
  }
  std::string Attributes() const override {
    return ListAttributes("smoothing", smoothing_);
  }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  void Run(const BoundOp& c, const RunContext& run) const override;
  uint32_t Accumulates() const override { return 1u << kGradW; }
  int64_t Flops(std::span<const ValueSpec> inputs,
                std::span<const ValueSpec> outputs) const override;
  int64_t RecomputeFlops(std::span<const ValueSpec> inputs,
                         std::span<const ValueSpec> outputs) const override;
  Workspace Scratch(std::span<const ValueSpec> inputs,
                    std::span<const ValueSpec> outputs) const override;

 private:
  float smoothing_;
};

}  // namespace thimble::ops
