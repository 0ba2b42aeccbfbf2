// SPDX-License-Identifier: Apache-2.0
#include "ops/add.h"

#include <fmt/format.h>

#include "kernels/elementwise/elementwise.h"
#include "ops/bound_op.h"

namespace thimble::ops {

Result<std::vector<ValueSpec>> Add::Infer(
    std::span<const ValueSpec> inputs) const {
  if (inputs[0].shape != inputs[1].shape || inputs[0].dtype != DType::kF32 ||
      inputs[1].dtype != DType::kF32) {
    return Status::Usage(
        fmt::format("needs two f32 values of one shape, got {} {} and {} {}",
                    inputs[0].shape.ToString(), DTypeName(inputs[0].dtype),
                    inputs[1].shape.ToString(), DTypeName(inputs[1].dtype)));
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
