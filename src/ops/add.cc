// SPDX-License-Identifier: Apache-2.0
#include "ops/add.h"

#include <fmt/format.h>

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

}  // namespace thimble::ops
