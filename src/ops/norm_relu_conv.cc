// SPDX-License-Identifier: Apache-2.0
#include "ops/norm_relu_conv.h"

#include <memory>

#include "base/check.h"
#include "kernels/norm/norm.h"
#include "ops/batch_norm.h"
#include "ops/bound_op.h"
#include "ops/gradient_out.h"
#include "ops/groups.h"
#include "ops/norm_vectors.h"
#include "ops/storage.h"

namespace thimble::ops {

Result<std::vector<ValueSpec>> Moments::Infer(
    std::span<const ValueSpec> inputs) const {
  TH_RETURN_IF_ERROR(CheckFloats(inputs, {"x"}));
  std::vector<ValueSpec> outputs;
  AddStatistics(inputs[0].shape[1], groups_, outputs);
  return outputs;
}

Result<std::vector<ValueSpec>> NormReluConv::Infer(
    std::span<const ValueSpec> inputs) const {
  TH_RETURN_IF_ERROR(CheckFloats(
      inputs, {"x", Vector("mean"), Vector("variance"), Vector("gamma"),
               Vector("beta"), Weight("w"), "residual"}));
  auto made = geometry_.Infer(inputs[kX], inputs[kW]);
  if (made.ok() && with_moments_) {
    AddStatistics(inputs[kW].shape[0], GroupsOf(inputs[kMean]), *made);
  }
  return made;
}

RepeatForm NormReluConv::Repeat() const {
  return {std::make_shared<NormReluConv>(geometry_, epsilon_, residual_,
                                         /*with_moments=*/false),
          false};
}

int64_t NormReluConv::Flops(std::span<const ValueSpec> inputs,
                            std::span<const ValueSpec> outputs) const {
  return geometry_.Flops(inputs[kX], inputs[kW]) +
         kPrologueFlops * inputs[kX].shape.elements() +
         (residual_ ? 1 : 0) * outputs[0].shape.elements() +
         (with_moments_ ? 4 : 0) * outputs[0].shape.elements();
}

Workspace NormReluConv::Scratch(std::span<const ValueSpec> inputs,
                                std::span<const ValueSpec>) const {
  return WithNormVectors(
      kernels::Conv2dForwardWorkspace(
          geometry_.ShapeOf(inputs[kX], inputs[kW]),
          Reduction(with_moments_, inputs[kX], GroupsOf(inputs[kMean]))),
      inputs[kX].shape[1]);
}

Result<std::vector<ValueSpec>> NormReluConvGradWeight::Infer(
    std::span<const ValueSpec> inputs) const {
  TH_RETURN_IF_ERROR(
      CheckFloats(inputs, {"x", Vector("mean"), Vector("variance"),
                           Vector("gamma"), Vector("beta"), "grad_y"}));
  return std::vector<ValueSpec>{w_};
}

int64_t NormReluConvGradWeight::Flops(
    std::span<const ValueSpec> inputs,
    std::span<const ValueSpec> outputs) const {
  return geometry_.Flops(inputs[kX], w_) + RecomputeFlops(inputs, outputs);
}

int64_t NormReluConvGradWeight::RecomputeFlops(
    std::span<const ValueSpec> inputs, std::span<const ValueSpec>) const {
  return kPrologueFlops * inputs[kX].shape.elements();
}

Workspace NormReluConvGradWeight::Scratch(
    std::span<const ValueSpec> inputs,
    std::span<const ValueSpec> outputs) const {
  return WithNormVectors(GradWeightWorkspace(ShapeOf(inputs[kX]), outputs[0]),
                         inputs[kX].shape[1]);
}

Result<std::vector<ValueSpec>> NormReluConvGradInput::Infer(
    std::span<const ValueSpec> inputs) const {
  TH_RETURN_IF_ERROR(CheckFloats(
      inputs, {"grad_y", Weight("w"), "x", Vector("mean"), Vector("variance"),
               Vector("gamma"), Vector("beta")}));
  std::vector<ValueSpec> outputs = {inputs[kX]};
  AddStatistics(inputs[kX].shape[1], GroupsOf(inputs[kMean]), outputs);
  return outputs;
}

int64_t NormReluConvGradInput::Flops(std::span<const ValueSpec> inputs,
                                     std::span<const ValueSpec> outputs) const {
  // The sums behind grad_gamma and grad_beta, and the mask.
  return geometry_.Flops(inputs[kX], inputs[kW]) +
         4 * inputs[kX].shape.elements() + RecomputeFlops(inputs, outputs);
}

int64_t NormReluConvGradInput::RecomputeFlops(
    std::span<const ValueSpec> inputs, std::span<const ValueSpec>) const {
  return kPrologueFlops * inputs[kX].shape.elements();
}

Workspace NormReluConvGradInput::Scratch(std::span<const ValueSpec> inputs,
                                         std::span<const ValueSpec>) const {
  return WithNormVectors(
      kernels::Conv2dGradInputWorkspace(
          geometry_.ShapeOf(inputs[kX], inputs[kW]),
          Reduction(true, inputs[kX], GroupsOf(inputs[kMean]))),
      inputs[kX].shape[1]);
}

Workspace NormGrad::Scratch(std::span<const ValueSpec> inputs,
                            std::span<const ValueSpec>) const {
  return WithNormVectors({}, inputs[kX].shape[1]);
}

Result<std::vector<ValueSpec>> NormGrad::Infer(
    std::span<const ValueSpec> inputs) const {
  TH_RETURN_IF_ERROR(CheckFloats(
      inputs, {"grad", "x", Vector("mean"), Vector("variance"), Vector("gamma"),
               Vector("grad_gamma"), Vector("grad_beta"), "other"}));
  return std::vector<ValueSpec>{inputs[kX]};
}

void Moments::Run(const BoundOp& c, const RunContext& run) const {
  const auto shape = BatchNormShapeOf(c.in_spec(0));
  const int64_t group = GroupImages(c.in_spec(0), c.out_spec(0));
  ForGroups(group, run.Rows(c.in_spec(0)), [&](const Group& g) {
    const int64_t of = g.index * shape.channels;
    kernels::BatchNormMoments(
        shape, g.images, c.In(0).From(FirstElement(c.in_spec(0), g)),
        c.Out(0).f32() + of, c.Out(1).f32() + of, c.kernel);
  });
}

void NormReluConv::Run(const BoundOp& c, const RunContext& run) const {
  const auto shape = geometry().ShapeOf(c.in_spec(kX), c.in_spec(kW));
  const int64_t group = GroupImages(c.in_spec(kX), c.in_spec(kMean));
  ForGroups(group, run.Rows(c.in_spec(kX)), [&](const Group& g) {
    const int64_t of_x = g.index * shape.in_channels;
    const int64_t of_y = g.index * shape.out_channels;
    const int64_t at_y = FirstElement(c.out_spec(0), g);
    const NormVectors norm =
        MakeNormVectors(c, shape.in_channels, epsilon(),
                        {.mean = c.In(kMean).f32() + of_x,
                         .variance = c.In(kVariance).f32() + of_x,
                         .gamma = c.In(kGamma).f32(),
                         .beta = c.In(kBeta).f32()});
    kernels::Conv2dForward(
        shape, g.images,
        {.x = c.In(kX).From(FirstElement(c.in_spec(kX), g)),
         .scale = norm.scale,
         .shift = norm.shift,
         .relu = true},
        c.In(kW),
        {.to = c.Out(0).From(at_y),
         .residual = c.InOrNone(kResidual).From(at_y),
         .mean = with_moments() ? c.Out(1).f32() + of_y : nullptr,
         .variance = with_moments() ? c.Out(2).f32() + of_y : nullptr},
        c.kernel);
  });
}

void NormReluConvGradInput::Run(const BoundOp& c, const RunContext& run) const {
  RunNormReluConvGrad(geometry_, epsilon_, /*stores=*/true, c, run);
}

void NormReluConvGradWeight::Run(const BoundOp& c,
                                 const RunContext& run) const {
  const auto shape = ShapeOf(c.in_spec(kX));
  const int64_t group = GroupImages(c.in_spec(kX), c.in_spec(kMean));
  ForGroups(group, run.Rows(c.in_spec(kX)), [&](const Group& g) {
    const int64_t of = g.index * shape.in_channels;
    const NormVectors norm =
        MakeNormVectors(c, shape.in_channels, epsilon(),
                        {.mean = c.In(kMean).f32() + of,
                         .variance = c.In(kVariance).f32() + of,
                         .gamma = c.In(kGamma).f32(),
                         .beta = c.In(kBeta).f32()});
    const GradientOut grad_w(c, 0, run, kernels::ConstTensor::None(),
                             {g.index, g.first});
    kernels::Conv2dGradWeight(
        shape, g.images,
        {.x = c.In(kX).From(FirstElement(c.in_spec(kX), g)),
         .scale = norm.scale,
         .shift = norm.shift,
         .relu = true},
        c.In(kGradY).From(FirstElement(c.in_spec(kGradY), g)), grad_w.ForConv(),
        c.kernel);
  });
}

void NormGrad::Run(const BoundOp& c, const RunContext& run) const {
  const auto shape = BatchNormShapeOf(c.in_spec(kX));
  const int64_t group = GroupImages(c.in_spec(kX), c.in_spec(kMean));
  ForGroups(group, run.Rows(c.in_spec(kX)), [&](const Group& g) {
    const int64_t of = g.index * shape.channels;
    const int64_t at = FirstElement(c.in_spec(kX), g);
    // The shift is not used here; any beta will do.
    const NormVectors norm =
        MakeNormVectors(c, shape.channels, epsilon(),
                        {.mean = c.In(kMean).f32() + of,
                         .variance = c.In(kVariance).f32() + of,
                         .gamma = c.In(kGamma).f32(),
                         .beta = c.In(kGamma).f32()});
    kernels::BatchNormGradRest(
        shape, g.images, c.In(kGrad).From(at), c.In(kX).From(at),
        {.gamma = c.In(kGamma).f32(),
         .mean = c.In(kMean).f32() + of,
         .inv_std = norm.inv_std,
         .grad_gamma = c.In(kGradGamma).f32() + of,
         .grad_beta = c.In(kGradBeta).f32() + of},
        c.InOrNone(kOther).From(at), c.Out(0).From(at), c.kernel);
  });
}

void RunNormReluConvGrad(const ConvGeometry& geometry, float epsilon,
                         bool stores, const BoundOp& c, const RunContext& run) {
  using Op = NormReluConvGradInput;
  const auto shape = geometry.ShapeOf(c.in_spec(Op::kX), c.in_spec(Op::kW));
  const int64_t group = GroupImages(c.in_spec(Op::kX), c.in_spec(Op::kMean));
  const size_t sums = stores ? 1 : 0;  // the first of them
  // What is not stored is summed up as if it were, like x.
  const kernels::Tensor grad =
      stores ? c.Out(0)
             : kernels::Tensor(nullptr, c.in_spec(Op::kX).storage.dtype);
  ForGroups(group, run.Rows(c.in_spec(Op::kX)), [&](const Group& g) {
    const int64_t of = g.index * shape.in_channels;
    const int64_t at_x = FirstElement(c.in_spec(Op::kX), g);
    const NormVectors norm =
        MakeNormVectors(c, shape.in_channels, epsilon,
                        {.mean = c.In(Op::kMean).f32() + of,
                         .variance = c.In(Op::kVariance).f32() + of,
                         .gamma = c.In(Op::kGamma).f32(),
                         .beta = c.In(Op::kBeta).f32()});
    kernels::Conv2dGradInput(
        shape, g.images,
        c.In(Op::kGradY).From(FirstElement(c.in_spec(Op::kGradY), g)),
        c.In(Op::kW),
        {.to = grad.From(at_x),
         .x = c.In(Op::kX).From(at_x),
         .scale = norm.scale,
         .shift = norm.shift,
         .mean = c.In(Op::kMean).f32() + of,
         .inv_std = norm.inv_std,
         .grad_gamma = c.Out(sums).f32() + of,
         .grad_beta = c.Out(sums + 1).f32() + of},
        c.kernel);
  });
}

}  // namespace thimble::ops
