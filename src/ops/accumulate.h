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
  // `group_images`: of a full group, 0 where there are no groups. Only the
  // groups that a run has images for are summed.
  explicit Accumulate(int64_t group_images) : group_images_(group_images) {}

  std::string_view name() const override { return "accumulate"; }
  std::string Attributes() const override {
    return ListAttributes("images of a group", group_images_);
  }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  void Run(const BoundOp& c, const RunContext& run) const override;
  uint32_t Accumulates() const override { return 0b1; }

  int64_t group_images() const { return group_images_; }

 private:
  int64_t group_images_;
};

}  // namespace thimble::ops
