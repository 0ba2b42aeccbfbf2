// SPDX-License-Identifier: Apache-2.0
#include "ops/two_pass_grad.h"

namespace thimble::ops {

Result<std::vector<ValueSpec>> NormReluConvGradSums::Infer(
    std::span<const ValueSpec> inputs) const {
  auto made = NormReluConvGradInput(geometry_, epsilon_).Infer(inputs);
  if (made.ok()) made->erase(made->begin());
  return made;
}

int64_t NormReluConvGradSums::Flops(std::span<const ValueSpec> inputs,
                                    std::span<const ValueSpec> outputs) const {
  return NormReluConvGradInput(geometry_, epsilon_).Flops(inputs, outputs);
}

int64_t NormReluConvGradSums::RecomputeFlops(
    std::span<const ValueSpec> inputs,
    std::span<const ValueSpec> outputs) const {
  return NormReluConvGradInput(geometry_, epsilon_)
      .RecomputeFlops(inputs, outputs);
}

Workspace NormReluConvGradSums::Scratch(
    std::span<const ValueSpec> inputs,
    std::span<const ValueSpec> outputs) const {
  return NormReluConvGradInput(geometry_, epsilon_).Scratch(inputs, outputs);
}

Result<std::vector<ValueSpec>> NormReluConvGradRest::Infer(
    std::span<const ValueSpec> inputs) const {
  return std::vector<ValueSpec>{inputs[2]};
}

int64_t NormReluConvGradRest::Flops(std::span<const ValueSpec> inputs,
                                    std::span<const ValueSpec> outputs) const {
  return NormGrad(epsilon_, with_other_).Flops(outputs, outputs) +
         RecomputeFlops(inputs, outputs);
}

int64_t NormReluConvGradRest::RecomputeFlops(std::span<const ValueSpec> inputs,
                                             std::span<const ValueSpec>) const {
  // The convolution, x * scale + shift and the mask.
  return geometry_.Flops(inputs[2], inputs[1]) +
         (kPrologueFlops + 1) * inputs[2].shape.elements();
}

Workspace NormReluConvGradRest::Scratch(std::span<const ValueSpec> inputs,
                                        std::span<const ValueSpec>) const {
  return WithNormVectors(kernels::Conv2dGradInputWorkspace(
                             geometry_.ShapeOf(inputs[2], inputs[1])),
                         inputs[2].shape[1]);
}

}  // namespace thimble::ops
