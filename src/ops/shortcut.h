// SPDX-License-Identifier: Apache-2.0
//
// shortcut: x [N, C, H, W] -> [N, C', ⌈H/s⌉, ⌈W/s⌉]: every s-th row and column,
// then C'−C channels of zeros, or only the first C' channels (the identity
// across a change of shape). Backward needs nothing of the forward pass.
#pragma once

#include "graph/attributes.h"
#include "graph/op.h"
#include "kernels/shortcut/shortcut.h"

namespace thimble::ops {

class Shortcut final : public OpDef {
 public:
  Shortcut(int64_t out_channels, int64_t stride)
      : out_channels_(out_channels), stride_(stride) {}

  std::string_view name() const override { return "shortcut"; }
  std::string Attributes() const override {
    return ListAttributes("channels", out_channels_, "stride", stride_);
  }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  void Run(const BoundOp& c, const RunContext& run) const override;
  void Gradient(GradientContext& context) const override;
  int64_t Flops(std::span<const ValueSpec>,
                std::span<const ValueSpec>) const override {
    return 0;
  }

  kernels::ShortcutShape ShapeOf(const ValueSpec& x) const;

 private:
  int64_t out_channels_;
  int64_t stride_;
};

// grad_y -> grad_x
class ShortcutGrad final : public OpDef {
 public:
  ShortcutGrad(const kernels::ShortcutShape& shape, const ValueSpec& x)
      : shape_(shape), x_(x) {}

  std::string_view name() const override { return "shortcut-grad"; }
  std::string Attributes() const override {
    return ListAttributes("channels", shape_.out_channels, "stride",
                          shape_.stride, "x", x_);
  }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  void Run(const BoundOp& c, const RunContext& run) const override;
  int64_t Flops(std::span<const ValueSpec>,
                std::span<const ValueSpec>) const override {
    return 0;
  }

  const kernels::ShortcutShape& shape() const { return shape_; }

 private:
  kernels::ShortcutShape shape_;
  ValueSpec x_;
};

}  // namespace thimble::ops
