// SPDX-License-Identifier: Apache-2.0
//
// accumulate: a parameter's gradient -> the same, summed over the microbatches
// of a step; first over the groups of a microbatch, where there is one gradient
// for each: [groups, C] -> [C]. For gradients whose own op cannot add to what
// is there, because another op reads the microbatch's part.
#pragma once

#include "graph/attributes.h"
#include "graph/op.h"

namespace thimble::ops {

class Accumulate final : public OpDef {
 public:
  // Of one gradient per microbatch.
  Accumulate() = default;
  // Of one per group of `group_images` along `axis`: only the groups that a run
  // has images for are summed.
  Accumulate(int64_t group_images, AxisId axis)
      : group_images_(group_images), axis_(axis) {}

  std::string_view name() const override { return "accumulate"; }
  std::string Attributes() const override {
    return ListAttributes("images of a group", group_images_, "axis", axis_);
  }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  void Run(const BoundOp& c, const RunContext& run) const override;
  uint32_t Accumulates() const override { return 0b1; }

 private:
  int64_t group_images_ = 0;  // 0: no groups
  AxisId axis_;
};

}  // namespace thimble::ops
