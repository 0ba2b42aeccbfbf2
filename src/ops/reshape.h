// SPDX-License-Identifier: Apache-2.0
//
// flatten: [N, C, H, W] -> [N, C·H·W], and back in the gradient. A view: the
// output is the input's bytes and nothing runs.
#pragma once

#include "graph/attributes.h"
#include "graph/op.h"

namespace thimble::ops {

class Flatten final : public OpDef {
 public:
  std::string_view name() const override { return "flatten"; }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  void Gradient(GradientContext& context) const override;
  bool IsView() const override { return true; }
  int64_t Flops(std::span<const ValueSpec>,
                std::span<const ValueSpec>) const override {
    return 0;
  }
};

// The same bytes under a given shape.
class Reshape final : public OpDef {
 public:
  explicit Reshape(const Shape& shape) : shape_(shape) {}

  std::string_view name() const override { return "reshape"; }
  std::string Attributes() const override {
    return ListAttributes("shape", shape_);
  }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  bool IsView() const override { return true; }
  int64_t Flops(std::span<const ValueSpec>,
                std::span<const ValueSpec>) const override {
    return 0;
  }

 private:
  Shape shape_;
};

}  // namespace thimble::ops
