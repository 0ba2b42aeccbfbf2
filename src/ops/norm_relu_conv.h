// SPDX-License-Identifier: Apache-2.0
//
// The executable forms of a fused-conv (ops/fused_conv.h): the convolution
// applies scale, shift and ReLU while it loads its input, and gives the
// statistics of what it makes where a batch norm follows.
#pragma once

#include "graph/attributes.h"
#include "graph/op.h"
#include "ops/conv_geometry.h"

namespace thimble::ops {

// x -> mean, variance: the batch's, where the op that made x did not give them.
class Moments final : public OpDef {
 public:
  explicit Moments(int64_t groups) : groups_(groups) {}

  std::string_view name() const override { return "moments"; }
  std::string Attributes() const override {
    return ListAttributes("groups", groups_);
  }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  void Run(const BoundOp& c, const RunContext& run) const override;
  int64_t Flops(std::span<const ValueSpec> inputs,
                std::span<const ValueSpec> outputs) const override {
    return 4 * OpDef::Flops(inputs, outputs);
  }

 private:
  int64_t groups_;
};

// x, mean, variance, gamma, beta, w[, residual] -> y[, mean, variance of y].
// In place on the residual.
class NormReluConv final : public OpDef {
 public:
  enum Input : uint32_t { kX, kMean, kVariance, kGamma, kBeta, kW, kResidual };

  NormReluConv(const ConvGeometry& geometry, float epsilon, bool residual,
               bool with_moments)
      : geometry_(geometry),
        epsilon_(epsilon),
        residual_(residual),
        with_moments_(with_moments) {}

  std::string_view name() const override { return "norm-relu-conv"; }
  std::string Attributes() const override {
    return ListAttributes("stride", geometry_.stride, "padding",
                          geometry_.padding, "epsilon", epsilon_, "residual",
                          residual_, "with moments", with_moments_);
  }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  void Run(const BoundOp& c, const RunContext& run) const override;
  std::vector<InPlacePair> InPlace() const override {
    if (!residual_) return {};
    return {{kResidual, 0}};
  }
  RepeatForm Repeat() const override;
  int64_t Flops(std::span<const ValueSpec> inputs,
                std::span<const ValueSpec> outputs) const override;
  Workspace Scratch(std::span<const ValueSpec> inputs,
                    std::span<const ValueSpec> outputs) const override;

  const ConvGeometry& geometry() const { return geometry_; }
  float epsilon() const { return epsilon_; }
  bool residual() const { return residual_; }
  bool with_moments() const { return with_moments_; }

 private:
  ConvGeometry geometry_;
  float epsilon_;
  bool residual_;
  bool with_moments_;
};

// x, mean, variance, gamma, beta, grad_y -> grad_w
class NormReluConvGradWeight final : public OpDef {
 public:
  enum Input : uint32_t { kX, kMean, kVariance, kGamma, kBeta, kGradY };

  NormReluConvGradWeight(const ConvGeometry& geometry, float epsilon,
                         const ValueSpec& w)
      : geometry_(geometry), epsilon_(epsilon), w_(w) {}

  std::string_view name() const override {
    return "norm-relu-conv-grad-weight";
  }
  std::string Attributes() const override {
    return ListAttributes("stride", geometry_.stride, "padding",
                          geometry_.padding, "epsilon", epsilon_, "w", w_);
  }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  void Run(const BoundOp& c, const RunContext& run) const override;
  uint32_t Accumulates() const override { return 0b1; }
  int64_t Flops(std::span<const ValueSpec> inputs,
                std::span<const ValueSpec> outputs) const override;
  int64_t RecomputeFlops(std::span<const ValueSpec> inputs,
                         std::span<const ValueSpec> outputs) const override;
  Workspace Scratch(std::span<const ValueSpec> inputs,
                    std::span<const ValueSpec> outputs) const override;

  kernels::Conv2dShape ShapeOf(const ValueSpec& x) const {
    return geometry_.ShapeOf(x, w_);
  }
  float epsilon() const { return epsilon_; }

 private:
  ConvGeometry geometry_;
  float epsilon_;
  ValueSpec w_;
};

// grad_y, w, x, mean, variance, gamma, beta -> grad of bn(x) behind the ReLU,
// and for each group of the statistics grad_gamma, grad_beta
class NormReluConvGradInput final : public OpDef {
 public:
  enum Input : uint32_t { kGradY, kW, kX, kMean, kVariance, kGamma, kBeta };

  NormReluConvGradInput(const ConvGeometry& geometry, float epsilon)
      : geometry_(geometry), epsilon_(epsilon) {}

  std::string_view name() const override { return "norm-relu-conv-grad-input"; }
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

// grad, x, mean, variance, gamma, grad_gamma, grad_beta[, other] -> grad_x,
// what is left of batch norm's backward, plus another gradient of x. In place
// on grad, other or x.
class NormGrad final : public OpDef {
 public:
  enum Input : uint32_t {
    kGrad,
    kX,
    kMean,
    kVariance,
    kGamma,
    kGradGamma,
    kGradBeta,
    kOther
  };

  NormGrad(float epsilon, bool with_other)
      : epsilon_(epsilon), with_other_(with_other) {}

  std::string_view name() const override { return "norm-grad"; }
  std::string Attributes() const override {
    return ListAttributes("epsilon", epsilon_, "with another gradient",
                          with_other_);
  }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  void Run(const BoundOp& c, const RunContext& run) const override;
  std::vector<InPlacePair> InPlace() const override {
    if (!with_other_) return {{kGrad, 0}, {kX, 0}};
    return {{kGrad, 0}, {kOther, 0}, {kX, 0}};
  }
  int64_t Flops(std::span<const ValueSpec> inputs,
                std::span<const ValueSpec> outputs) const override {
    return 5 * OpDef::Flops(inputs, outputs);
  }

  Workspace Scratch(std::span<const ValueSpec> inputs,
                    std::span<const ValueSpec> outputs) const override;

  float epsilon() const { return epsilon_; }
  bool with_other() const { return with_other_; }

 private:
  float epsilon_;
  bool with_other_;
};

// Runs norm-relu-conv-grad-input, or with `stores` false only its sums.
void RunNormReluConvGrad(const ConvGeometry& geometry, float epsilon,
                         bool stores, const BoundOp& c, const RunContext& run);

}  // namespace thimble::ops
