// SPDX-License-Identifier: Apache-2.0
//
// The input's gradient of a fused-conv (ops/fused_conv.h) in two passes over
// the convolution, so that the gradient of bn(x), which has the size of x, is
// never stored: the first pass leaves only its sums, the second makes it again
// and goes on to the gradient of x, which may be written over x. f32. Together
// they give the bits of norm-relu-conv-grad-input and norm-grad, for one more
// convolution.
//
// The planner's two-pass pass puts them in the place of those two.
#pragma once

#include "graph/attributes.h"
#include "graph/op.h"
#include "ops/norm_relu_conv.h"

namespace thimble::ops {

// grad_y, w, x, mean, variance, gamma, beta -> grad_gamma, grad_beta for each
// group of the statistics
class NormReluConvGradSums final : public OpDef {
 public:
  enum Input : uint32_t { kGradY, kW, kX, kMean, kVariance, kGamma, kBeta };

  NormReluConvGradSums(const ConvGeometry& geometry, float epsilon)
      : geometry_(geometry), epsilon_(epsilon) {}

  std::string_view name() const override { return "norm-relu-conv-grad-sums"; }
  std::string Attributes() const override {
    return ListAttributes("stride", geometry_.stride, "padding",
                          geometry_.padding, "epsilon", epsilon_);
  }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  void Run(const BoundOp& c, const RunContext& run) const override;
  int64_t Flops(std::span<const ValueSpec> inputs,
                std::span<const ValueSpec> outputs) const override;
  int64_t RecomputeFlops(std::span<const ValueSpec> inputs,
                         std::span<const ValueSpec> outputs) const override;
  Workspace Scratch(std::span<const ValueSpec> inputs,
                    std::span<const ValueSpec> outputs) const override;

  const ConvGeometry& geometry() const { return geometry_; }
  float epsilon() const { return epsilon_; }

 private:
  ConvGeometry geometry_;
  float epsilon_;
};

// grad_y, w, x, mean, variance, gamma, beta, grad_gamma, grad_beta[, other] ->
// grad_x, plus another gradient of x. In place on x or other.
class NormReluConvGradRest final : public OpDef {
 public:
  enum Input : uint32_t {
    kGradY,
    kW,
    kX,
    kMean,
    kVariance,
    kGamma,
    kBeta,
    kGradGamma,
    kGradBeta,
    kOther
  };

  NormReluConvGradRest(const ConvGeometry& geometry, float epsilon,
                       bool with_other)
      : geometry_(geometry), epsilon_(epsilon), with_other_(with_other) {}

  std::string_view name() const override { return "norm-relu-conv-grad-rest"; }
  std::string Attributes() const override {
    return ListAttributes("stride", geometry_.stride, "padding",
                          geometry_.padding, "epsilon", epsilon_,
                          "with another gradient", with_other_);
  }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  void Run(const BoundOp& c, const RunContext& run) const override;
  std::vector<InPlacePair> InPlace() const override {
    if (!with_other_) return {{kX, 0}};
    return {{kX, 0}, {kOther, 0}};
  }
  int64_t Flops(std::span<const ValueSpec> inputs,
                std::span<const ValueSpec> outputs) const override;
  // All but what norm-grad does.
  int64_t RecomputeFlops(std::span<const ValueSpec> inputs,
                         std::span<const ValueSpec> outputs) const override;
  Workspace Scratch(std::span<const ValueSpec> inputs,
                    std::span<const ValueSpec> outputs) const override;

  const ConvGeometry& geometry() const { return geometry_; }
  float epsilon() const { return epsilon_; }
  bool with_other() const { return with_other_; }

 private:
  ConvGeometry geometry_;
  float epsilon_;
  bool with_other_;
};

}  // namespace thimble::ops
