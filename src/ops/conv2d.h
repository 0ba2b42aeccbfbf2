// SPDX-License-Identifier: Apache-2.0
//
// conv2d: x [N, C, H, W], w [O, C, KH, KW] -> y [N, O, H', W'], f32, no bias.
// Backward reads x (for dW) and w (for dX); the output is not needed.
#pragma once

#include "graph/attributes.h"
#include "graph/op.h"
#include "kernels/conv/conv.h"

namespace thimble::ops {

class Conv2d final : public OpDef {
 public:
  enum Input : uint32_t { kX, kW };

  Conv2d(int64_t stride, int64_t padding)
      : stride_(stride), padding_(padding) {}

  std::string_view name() const override { return "conv2d"; }
  std::string Attributes() const override {
    return ListAttributes("stride", stride_, "padding", padding_);
  }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  void Run(const BoundOp& c, const RunContext& run) const override;
  BackwardNeeds Needs() const override { return {.inputs = 0b11}; }
  uint32_t TakesSparse() const override { return 1u << kW; }
  void Gradient(GradientContext& context) const override;
  int64_t Flops(std::span<const ValueSpec> inputs,
                std::span<const ValueSpec> outputs) const override;
  Workspace Scratch(std::span<const ValueSpec> inputs,
                    std::span<const ValueSpec> outputs) const override;

  kernels::Conv2dShape ShapeOf(const ValueSpec& x, const ValueSpec& w) const;
  int64_t stride() const { return stride_; }
  int64_t padding() const { return padding_; }

 private:
  int64_t stride_;
  int64_t padding_;
};

// grad_y, w -> grad_x
class Conv2dGradInput final : public OpDef {
 public:
  enum Input : uint32_t { kGradY, kW };

  Conv2dGradInput(const kernels::Conv2dShape& shape, const ValueSpec& x)
      : shape_(shape), x_(x) {}

  std::string_view name() const override { return "conv2d-grad-input"; }
  std::string Attributes() const override {
    return ListAttributes("stride", shape_.stride, "padding", shape_.padding,
                          "x", x_);
  }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  void Run(const BoundOp& c, const RunContext& run) const override;
  int64_t Flops(std::span<const ValueSpec> inputs,
                std::span<const ValueSpec> outputs) const override;
  Workspace Scratch(std::span<const ValueSpec> inputs,
                    std::span<const ValueSpec> outputs) const override;

  const kernels::Conv2dShape& shape() const { return shape_; }

 private:
  kernels::Conv2dShape shape_;
  ValueSpec x_;
};

// x, grad_y -> grad_w
class Conv2dGradWeight final : public OpDef {
 public:
  enum Input : uint32_t { kX, kGradY };

  Conv2dGradWeight(const kernels::Conv2dShape& shape, const ValueSpec& w)
      : shape_(shape), w_(w) {}

  std::string_view name() const override { return "conv2d-grad-weight"; }
  std::string Attributes() const override {
    return ListAttributes("stride", shape_.stride, "padding", shape_.padding,
                          "w", w_);
  }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  void Run(const BoundOp& c, const RunContext& run) const override;
  uint32_t Accumulates() const override { return 0b1; }
  int64_t Flops(std::span<const ValueSpec> inputs,
                std::span<const ValueSpec> outputs) const override;
  Workspace Scratch(std::span<const ValueSpec> inputs,
                    std::span<const ValueSpec> outputs) const override;

  const kernels::Conv2dShape& shape() const { return shape_; }

 private:
  kernels::Conv2dShape shape_;
  ValueSpec w_;
};

}  // namespace thimble::ops
