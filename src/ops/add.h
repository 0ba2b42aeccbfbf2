// SPDX-License-Identifier: Apache-2.0
//
// add: y = a + b of equal f32 shapes, in place on either. Backward needs
// nothing: both gradients are grad_y itself. It also sums the gradients of a
// value that several ops read.
#pragma once

#include "graph/op.h"

namespace thimble::ops {

class Add final : public OpDef {
 public:
  std::string_view name() const override { return "add"; }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  void Run(const BoundOp& c, const RunContext& run) const override;
  void Gradient(GradientContext& context) const override;
  std::vector<InPlacePair> InPlace() const override { return {{0, 0}, {1, 0}}; }
};

}  // namespace thimble::ops
