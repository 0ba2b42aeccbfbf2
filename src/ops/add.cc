// SPDX-License-Identifier: Apache-2.0
#include "ops/add.h"

#include <fmt/format.h>

#include "base/check.h"
#include "kernels/elementwise/elementwise.h"
#include "ops/bound_op.h"
#include "ops/storage.h"

namespace thimble::ops {

Result<std::vector<ValueSpec>> Add::Infer(
    std::span<const ValueSpec> inputs) const {
  TH_RETURN_IF_ERROR(CheckFloats(inputs, {"a", "b"}));
  if (inputs[0].shape != inputs[1].shape) {
    return Status::Usage(
        fmt::format("needs two values of one shape, got {} and {}",
                    inputs[0].shape.ToString(), inputs[1].shape.ToString()));
  }
  return std::vector<ValueSpec>{inputs[0]};
}

void Add::Gradient(GradientContext& context) const {
  for (size_t i = 0; i < 2; ++i) {
    if (context.wanted[i]) context.grad_inputs[i] = context.grad_outputs[0];
  }
}

void Add::Run(const BoundOp& c, const RunContext& run) const {
  kernels::Add(run.Elements(c.out_spec(0)), c.In(0), c.In(1), c.Out(0),
               c.kernel);
}

}  // namespace thimble::ops
