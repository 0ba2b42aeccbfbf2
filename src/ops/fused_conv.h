// SPDX-License-Identifier: Apache-2.0
//
// fused-conv: batch norm, ReLU and a convolution in one op, optionally with a
// residual sum: y = conv(relu(bn(x)), w) + residual. The convolution applies
// scale, shift and ReLU while it loads its input, so relu(bn(x)) is stored
// nowhere: not in forward, not for dW, not for the mask. Backward reads x, w
// and the batch's statistics of x. The statistics of y, where a batch norm
// follows, are made while y is stored.
//
// image-conv: the same with constants instead of a batch norm, on u8 images.
//
// The planner's fuse pass makes both from the plain ops; results agree within
// rounding (the sums behind gradients have other partial sums).
#pragma once

#include "graph/op.h"
#include "kernels/conv/conv.h"
#include "ops/batch_norm.h"

namespace thimble::ops {

struct ConvGeometry {
  int64_t stride = 1;
  int64_t padding = 0;

  kernels::Conv2dShape ShapeOf(const ValueSpec& x, const ValueSpec& w) const;
  // Of one pass over the convolution's products.
  int64_t Flops(const ValueSpec& x, const ValueSpec& w) const;
};

// A multiply-add and a comparison for each element that a prologue makes.
inline constexpr int64_t kPrologueFlops = 3;

// Mode-free: x, gamma, beta, running_mean, running_variance, w[, residual] -> y
class FusedConv final : public OpDef {
 public:
  FusedConv(const ConvGeometry& geometry, const BatchNormAttributes& norm,
            bool residual)
      : geometry_(geometry), norm_(norm), residual_(residual) {}

  OpKind kind() const override { return OpKind::kFusedConv; }
  std::string_view name() const override { return "fused-conv"; }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  ForwardResult Forward(ForwardContext& context) const override;
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

// Mode-free and executable: images (u8), w -> y[, mean, variance]
class ImageConv final : public OpDef {
 public:
  // `groups`: of images with moments of their own, 0 for no moments.
  ImageConv(const ConvGeometry& geometry, std::vector<float> scale,
            std::vector<float> shift, int64_t groups = 0)
      : geometry_(geometry),
        scale_(std::move(scale)),
        shift_(std::move(shift)),
        groups_(groups) {}

  OpKind kind() const override { return OpKind::kImageConv; }
  std::string_view name() const override { return "image-conv"; }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  ForwardResult Forward(ForwardContext& context) const override;
  BackwardNeeds Needs() const override { return {.inputs = 0b01}; }
  void Gradient(GradientContext& context) const override;
  RepeatForm Repeat() const override;
  int64_t Flops(std::span<const ValueSpec> inputs,
                std::span<const ValueSpec> outputs) const override;
  Workspace Scratch(std::span<const ValueSpec> inputs,
                    std::span<const ValueSpec> outputs) const override;

  const ConvGeometry& geometry() const { return geometry_; }
  const std::vector<float>& scale() const { return scale_; }
  const std::vector<float>& shift() const { return shift_; }

 private:
  ConvGeometry geometry_;
  std::vector<float> scale_;
  std::vector<float> shift_;
  int64_t groups_;
};

// images (u8), grad_y -> grad_w
class ImageConvGradWeight final : public OpDef {
 public:
  ImageConvGradWeight(const ConvGeometry& geometry, std::vector<float> scale,
                      std::vector<float> shift, const ValueSpec& w)
      : geometry_(geometry),
        scale_(std::move(scale)),
        shift_(std::move(shift)),
        w_(w) {}

  OpKind kind() const override { return OpKind::kImageConvGradWeight; }
  std::string_view name() const override { return "image-conv-grad-weight"; }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
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
  const std::vector<float>& scale() const { return scale_; }
  const std::vector<float>& shift() const { return shift_; }

 private:
  ConvGeometry geometry_;
  std::vector<float> scale_;
  std::vector<float> shift_;
  ValueSpec w_;
};

// x -> mean, variance: the batch's, where the op that made x did not give them.
class Moments final : public OpDef {
 public:
  explicit Moments(int64_t groups) : groups_(groups) {}

  OpKind kind() const override { return OpKind::kMoments; }
  std::string_view name() const override { return "moments"; }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
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
  NormReluConv(const ConvGeometry& geometry, float epsilon, bool residual,
               bool with_moments)
      : geometry_(geometry),
        epsilon_(epsilon),
        residual_(residual),
        with_moments_(with_moments) {}

  OpKind kind() const override { return OpKind::kNormReluConv; }
  std::string_view name() const override { return "norm-relu-conv"; }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  std::vector<InPlacePair> InPlace() const override {
    if (!residual_) return {};
    return {{6, 0}};
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
  NormReluConvGradWeight(const ConvGeometry& geometry, float epsilon,
                         const ValueSpec& w)
      : geometry_(geometry), epsilon_(epsilon), w_(w) {}

  OpKind kind() const override { return OpKind::kNormReluConvGradWeight; }
  std::string_view name() const override {
    return "norm-relu-conv-grad-weight";
  }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
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
  NormReluConvGradInput(const ConvGeometry& geometry, float epsilon)
      : geometry_(geometry), epsilon_(epsilon) {}

  OpKind kind() const override { return OpKind::kNormReluConvGradInput; }
  std::string_view name() const override { return "norm-relu-conv-grad-input"; }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
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
  NormGrad(float epsilon, bool with_other)
      : epsilon_(epsilon), with_other_(with_other) {}

  OpKind kind() const override { return OpKind::kNormGrad; }
  std::string_view name() const override { return "norm-grad"; }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  std::vector<InPlacePair> InPlace() const override {
    if (!with_other_) return {{0, 0}, {1, 0}};
    return {{0, 0}, {7, 0}, {1, 0}};
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

// Scratch of the fused forms: the kernel's, and behind its shared part the
// scale and shift (and mean, inv_std) of each channel.
inline constexpr int64_t kNormVectors = 4;
Workspace WithNormVectors(Workspace workspace, int64_t channels);

}  // namespace thimble::ops
