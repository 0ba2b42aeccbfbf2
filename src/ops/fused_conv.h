// SPDX-License-Identifier: Apache-2.0
//
// fused-conv: batch norm, ReLU and a convolution in one op, optionally with a
// residual sum: y = conv(relu(bn(x)), w) + residual. The convolution applies
// scale, shift and ReLU while it loads its input, so relu(bn(x)) is stored
// nowhere: not in forward, not for dW, not for the mask. Backward reads x, w
// and the batch's statistics of x. The statistics of y, where a batch norm
// follows, are made while y is stored.
//
// The planner's fuse pass makes it from the plain ops; results agree within
// rounding (the sums behind gradients have other partial sums). What runs are
// the forms of ops/norm_relu_conv.h.
#pragma once

#include "graph/attributes.h"
#include "graph/op.h"
#include "ops/batch_norm.h"
#include "ops/conv_geometry.h"

namespace thimble::ops {

// Mode-free: x, gamma, beta, running_mean, running_variance, w[, residual] -> y
class FusedConv final : public OpDef {
 public:
  enum Input : uint32_t {
    kX,
    kGamma,
    kBeta,
    kRunningMean,
    kRunningVariance,
    kW,
    kResidual
  };

  FusedConv(const ConvGeometry& geometry, const BatchNormAttributes& norm,
            bool residual)
      : geometry_(geometry), norm_(norm), residual_(residual) {}

  std::string_view name() const override { return "fused-conv"; }
  std::string Attributes() const override {
    return ListAttributes("stride", geometry_.stride, "padding",
                          geometry_.padding, "epsilon", norm_.epsilon,
                          "momentum", norm_.momentum, "residual", residual_);
  }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  ForwardResult Forward(ForwardContext& context) const override;
  uint32_t TakesSparse() const override { return 1u << kW; }
  BackwardNeeds Needs() const override {
    // x, gamma, beta, w
    return {.inputs = 0b100111, .saved = true};
  }
  void Gradient(GradientContext& context) const override;

 private:
  ConvGeometry geometry_;
  BatchNormAttributes norm_;
  bool residual_;
};

}  // namespace thimble::ops
