// SPDX-License-Identifier: Apache-2.0
//
// normalize: u8 images [N, C, H, W] -> f32, y = x * scale[c] + shift[c]. The
// constants are attributes, not parameters. No gradient: images are not
// learned.
#pragma once

#include "graph/attributes.h"
#include "graph/op.h"

namespace thimble::ops {

class Normalize final : public OpDef {
 public:
  Normalize(std::vector<float> scale, std::vector<float> shift)
      : scale_(std::move(scale)), shift_(std::move(shift)) {}

  std::string_view name() const override { return "normalize"; }
  std::string Attributes() const override {
    return ListAttributes("scale", scale_, "shift", shift_);
  }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  void Run(const BoundOp& c, const RunContext& run) const override;
  int64_t Flops(std::span<const ValueSpec> inputs,
                std::span<const ValueSpec> outputs) const override {
    return 2 * OpDef::Flops(inputs, outputs);
  }

  // One per channel.
  const std::vector<float>& scale() const { return scale_; }
  const std::vector<float>& shift() const { return shift_; }

 private:
  std::vector<float> scale_;
  std::vector<float> shift_;
};

}  // namespace thimble::ops
