// SPDX-License-Identifier: Apache-2.0
//
// image-conv: a convolution of u8 images, each channel scaled and shifted while
// it is loaded: y = conv(x * scale + shift, w). The planner's fuse pass makes
// it of normalize and conv2d; the normalised images are stored nowhere.
// Backward reads the images.
#pragma once

#include <vector>

#include "graph/attributes.h"
#include "graph/op.h"
#include "ops/conv_geometry.h"

namespace thimble::ops {

// Mode-free and executable: images (u8), w -> y[, mean, variance]
class ImageConv final : public OpDef {
 public:
  enum Input : uint32_t { kImages, kW };

  // `groups`: of images with moments of their own, 0 for no moments.
  ImageConv(const ConvGeometry& geometry, std::vector<float> scale,
            std::vector<float> shift, int64_t groups = 0)
      : geometry_(geometry),
        scale_(std::move(scale)),
        shift_(std::move(shift)),
        groups_(groups) {}

  std::string_view name() const override { return "image-conv"; }
  std::string Attributes() const override {
    return ListAttributes("stride", geometry_.stride, "padding",
                          geometry_.padding, "scale", scale_, "shift", shift_,
                          "groups", groups_);
  }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  void Run(const BoundOp& c, const RunContext& run) const override;
  ForwardResult Forward(ForwardContext& context) const override;
  BackwardNeeds Needs() const override { return {.inputs = 0b01}; }
  uint32_t TakesSparse() const override { return 1u << kW; }
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
  enum Input : uint32_t { kImages, kGradY };

  ImageConvGradWeight(const ConvGeometry& geometry, std::vector<float> scale,
                      std::vector<float> shift, const ValueSpec& w)
      : geometry_(geometry),
        scale_(std::move(scale)),
        shift_(std::move(shift)),
        w_(w) {}

  std::string_view name() const override { return "image-conv-grad-weight"; }
  std::string Attributes() const override {
    return ListAttributes("stride", geometry_.stride, "padding",
                          geometry_.padding, "scale", scale_, "shift", shift_,
                          "w", w_);
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
  const std::vector<float>& scale() const { return scale_; }
  const std::vector<float>& shift() const { return shift_; }

 private:
  ConvGeometry geometry_;
  std::vector<float> scale_;
  std::vector<float> shift_;
  ValueSpec w_;
};

}  // namespace thimble::ops
