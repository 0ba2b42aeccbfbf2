// SPDX-License-Identifier: Apache-2.0
#include "ops/two_pass_grad.h"

#include "base/check.h"
#include "kernels/conv/conv.h"
#include "kernels/norm/norm.h"
#include "ops/batch_norm.h"
#include "ops/bound_op.h"
#include "ops/groups.h"
#include "ops/norm_vectors.h"
#include "ops/storage.h"

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
  TH_RETURN_IF_ERROR(CheckFloats(
      inputs, {"grad_y", Weight("w"), "x", Vector("mean"), Vector("variance"),
               Vector("gamma"), Vector("beta"), Vector("grad_gamma"),
               Vector("grad_beta"), "other"}));
  return std::vector<ValueSpec>{inputs[kX]};
}

int64_t NormReluConvGradRest::Flops(std::span<const ValueSpec> inputs,
                                    std::span<const ValueSpec> outputs) const {
  return NormGrad(epsilon_, with_other_).Flops(outputs, outputs) +
         RecomputeFlops(inputs, outputs);
}

int64_t NormReluConvGradRest::RecomputeFlops(std::span<const ValueSpec> inputs,
                                             std::span<const ValueSpec>) const {
  // The convolution, x * scale + shift and the mask.
  return geometry_.Flops(inputs[kX], inputs[kW]) +
         (kPrologueFlops + 1) * inputs[kX].shape.elements();
}

Workspace NormReluConvGradRest::Scratch(std::span<const ValueSpec> inputs,
                                        std::span<const ValueSpec>) const {
  return WithNormVectors(kernels::Conv2dGradInputWorkspace(
                             geometry_.ShapeOf(inputs[kX], inputs[kW])),
                         inputs[kX].shape[1]);
}

void NormReluConvGradSums::Run(const BoundOp& c, const RunContext& run) const {
  RunNormReluConvGrad(geometry_, epsilon_, /*stores=*/false, c, run);
}

void NormReluConvGradRest::Run(const BoundOp& c, const RunContext& run) const {
  const auto shape = geometry().ShapeOf(c.in_spec(kX), c.in_spec(kW));
  const int64_t group = GroupImages(c.in_spec(kX), c.in_spec(kMean));
  ForGroups(group, run.Rows(c.in_spec(kX)), [&](const Group& g) {
    const int64_t of = g.index * shape.in_channels;
    const int64_t at_x = FirstElement(c.in_spec(kX), g);
    const NormVectors norm =
        MakeNormVectors(c, shape.in_channels, epsilon(),
                        {.mean = c.In(kMean).f32() + of,
                         .variance = c.In(kVariance).f32() + of,
                         .gamma = c.In(kGamma).f32(),
                         .beta = c.In(kBeta).f32()});
    kernels::Conv2dNormGrad(
        shape, g.images, c.In(kGradY).From(FirstElement(c.in_spec(kGradY), g)),
        c.In(kW),
        {.to = c.Out(0).From(at_x),
         .x = c.In(kX).From(at_x),
         .scale = norm.scale,
         .shift = norm.shift,
         .sums = {.gamma = c.In(kGamma).f32(),
                  .mean = c.In(kMean).f32() + of,
                  .inv_std = norm.inv_std,
                  .grad_gamma = c.In(kGradGamma).f32() + of,
                  .grad_beta = c.In(kGradBeta).f32() + of},
         .residual = c.InOrNone(kOther).From(at_x)},
        c.kernel);
  });
}

}  // namespace thimble::ops
