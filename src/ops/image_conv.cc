// SPDX-License-Identifier: Apache-2.0
#include "ops/image_conv.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "ops/batch_norm.h"
#include "ops/bound_op.h"
#include "ops/gradient_out.h"
#include "ops/groups.h"
#include "ops/storage.h"

namespace thimble::ops {

Result<std::vector<ValueSpec>> ImageConv::Infer(
    std::span<const ValueSpec> inputs) const {
  const ValueSpec& x = inputs[kImages];
  TH_RETURN_IF_ERROR(CheckStored("images", x, DType::kU8));
  TH_RETURN_IF_ERROR(CheckFloats(inputs.subspan(kW), {Weight("w")}));
  if (x.shape.rank() != 4 || scale_.size() != static_cast<size_t>(x.shape[1]) ||
      shift_.size() != scale_.size()) {
    return Status::Usage(fmt::format(
        "needs images [N, C, H, W] and a scale and shift for each channel, got "
        "{} and [{}]",
        x.shape.ToString(), scale_.size()));
  }
  auto made = geometry_.Infer(x, inputs[kW]);
  if (made.ok() && groups_ > 0) {
    AddStatistics(inputs[kW].shape[0], groups_, *made);
  }
  return made;
}

ForwardResult ImageConv::Forward(ForwardContext& context) const {
  const bool with_moments =
      context.mode == Mode::kTrain && context.output_is_normalized;
  const auto made = context.emit.Emit(
      context.name,
      std::make_shared<ImageConv>(
          geometry_, scale_, shift_,
          with_moments ? context.emit.statistics_groups() : 0),
      {context.inputs.begin(), context.inputs.end()}, Role::kActivation);
  if (with_moments) context.emit.SetMoments(made[0], {made[1], made[2]});
  return {{made[0]}, {}};
}

void ImageConv::Gradient(GradientContext& context) const {
  if (!context.wanted[kW]) return;
  const ValueSpec w = context.emit.graph().value(context.inputs[kW]).spec;
  context.grad_inputs[kW] = context.emit.Emit(
      context.name + ".grad_w",
      std::make_shared<ImageConvGradWeight>(geometry_, scale_, shift_, w),
      {context.inputs[kImages], context.grad_outputs[0]}, Role::kGradient)[0];
}

RepeatForm ImageConv::Repeat() const {
  return {std::make_shared<ImageConv>(geometry_, scale_, shift_), false};
}

int64_t ImageConv::Flops(std::span<const ValueSpec> inputs,
                         std::span<const ValueSpec>) const {
  return geometry_.Flops(inputs[kImages], inputs[kW]) +
         kPrologueFlops * inputs[kImages].shape.elements();
}

Workspace ImageConv::Scratch(std::span<const ValueSpec> inputs,
                             std::span<const ValueSpec>) const {
  return kernels::Conv2dForwardWorkspace(
      geometry_.ShapeOf(inputs[kImages], inputs[kW]),
      Reduction(groups_ > 0, inputs[kImages], std::max<int64_t>(groups_, 1)));
}

Result<std::vector<ValueSpec>> ImageConvGradWeight::Infer(
    std::span<const ValueSpec> inputs) const {
  TH_RETURN_IF_ERROR(CheckStored("images", inputs[kImages], DType::kU8));
  TH_RETURN_IF_ERROR(CheckFloat("grad_y", inputs[kGradY]));
  return std::vector<ValueSpec>{w_};
}

int64_t ImageConvGradWeight::Flops(std::span<const ValueSpec> inputs,
                                   std::span<const ValueSpec> outputs) const {
  return geometry_.Flops(inputs[kImages], w_) + RecomputeFlops(inputs, outputs);
}

int64_t ImageConvGradWeight::RecomputeFlops(std::span<const ValueSpec> inputs,
                                            std::span<const ValueSpec>) const {
  return kPrologueFlops * inputs[kImages].shape.elements();
}

Workspace ImageConvGradWeight::Scratch(
    std::span<const ValueSpec> inputs,
    std::span<const ValueSpec> outputs) const {
  return GradWeightWorkspace(ShapeOf(inputs[kImages]), outputs[0]);
}

void ImageConv::Run(const BoundOp& c, const RunContext& run) const {
  const auto shape = geometry().ShapeOf(c.in_spec(kImages), c.in_spec(kW));
  const bool moments = c.outputs.size() > 1;
  const int64_t group = moments ? GroupImages(c.in_spec(kImages), c.out_spec(1))
                                : c.in_spec(kImages).shape[0];
  ForGroups(group, run.Rows(c.in_spec(kImages)), [&](const Group& g) {
    const int64_t of = g.index * shape.out_channels;
    kernels::Conv2dForward(
        shape, g.images,
        {.x = c.In(kImages).From(FirstElement(c.in_spec(kImages), g)),
         .scale = scale().data(),
         .shift = shift().data()},
        c.In(kW),
        {.to = c.Out(0).From(FirstElement(c.out_spec(0), g)),
         .mean = moments ? c.Out(1).f32() + of : nullptr,
         .variance = moments ? c.Out(2).f32() + of : nullptr},
        c.kernel);
  });
}

void ImageConvGradWeight::Run(const BoundOp& c, const RunContext& run) const {
  const auto shape = ShapeOf(c.in_spec(kImages));
  const GradientOut grad_w(c, 0, run);
  kernels::Conv2dGradWeight(
      shape, run.Rows(c.in_spec(kImages)),
      {.x = c.In(kImages), .scale = scale().data(), .shift = shift().data()},
      c.In(kGradY), grad_w.ForConv(), c.kernel);
}

}  // namespace thimble::ops
