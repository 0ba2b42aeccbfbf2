// SPDX-License-Identifier: Apache-2.0
#include "ops/fused_conv.h"

#include <fmt/format.h>

#include <algorithm>

#include "ops/accumulate.h"
#include "ops/conv2d.h"

namespace thimble::ops {
namespace {

// The convolution's own rules, for x as f32.
Result<std::vector<ValueSpec>> InferConv(const ConvGeometry& geometry,
                                         ValueSpec x, const ValueSpec& w) {
  x.dtype = DType::kF32;
  const ValueSpec inputs[] = {x, w};
  return Conv2d(geometry.stride, geometry.padding).Infer(inputs);
}

void AddMoments(int64_t channels, int64_t groups,
                std::vector<ValueSpec>& outputs) {
  outputs.insert(outputs.end(), 2, StatisticsSpec(channels, groups));
}

// A kernel runs once for each group.
kernels::Conv2dReduction Reduction(bool reducing, const ValueSpec& x,
                                   int64_t groups) {
  return {.reducing = reducing, .images = x.shape[0] / groups};
}

// Sums a parameter's gradients of all groups, where there are several.
ValueId SumOfGroups(Emitter& emit, const std::string& name, ValueId gradients,
                    int64_t group_images) {
  if (GroupsOf(emit.graph().value(gradients).spec) == 1) return gradients;
  return emit.Emit(name, std::make_shared<Accumulate>(group_images),
                   {gradients}, Role::kGradient)[0];
}

}  // namespace

kernels::Conv2dShape ConvGeometry::ShapeOf(const ValueSpec& x,
                                           const ValueSpec& w) const {
  return Conv2d(stride, padding).ShapeOf(x, w);
}

int64_t ConvGeometry::Flops(const ValueSpec& x, const ValueSpec& w) const {
  const ValueSpec inputs[] = {x, w};
  return Conv2d(stride, padding).Flops(inputs, {});
}

Workspace WithNormVectors(Workspace workspace, int64_t channels) {
  workspace.shared =
      RoundUpToAlignment(workspace.shared) +
      static_cast<size_t>(kNormVectors * channels) * sizeof(float);
  return workspace;
}

Result<std::vector<ValueSpec>> FusedConv::Infer(
    std::span<const ValueSpec> inputs) const {
  auto normed = BatchNorm(norm_).Infer(inputs.subspan(0, 5));
  if (!normed.ok()) return normed.status();
  auto made = InferConv(geometry_, inputs[0], inputs[5]);
  if (made.ok() && residual_ && inputs[6].shape != (*made)[0].shape) {
    return Status::Usage(fmt::format("the sum needs {} on both sides, got {}",
                                     (*made)[0].shape.ToString(),
                                     inputs[6].shape.ToString()));
  }
  return made;
}

ForwardResult FusedConv::Forward(ForwardContext& context) const {
  const auto& in = context.inputs;
  const bool train = context.mode == Mode::kTrain;
  ValuePair moments = {in[3], in[4]};
  if (train) {
    moments = context.emit.MomentsOf(in[0]);
    TrackMoments(context, norm_, in[0], moments, {in[3], in[4]});
  }
  std::vector<ValueId> inputs = {in[0], moments.first, moments.second,
                                 in[1], in[2],         in[5]};
  if (residual_) inputs.push_back(in[6]);
  const bool with_moments = train && context.output_is_normalized;
  const auto made =
      context.emit.Emit(context.name,
                        std::make_shared<NormReluConv>(geometry_, norm_.epsilon,
                                                       residual_, with_moments),
                        std::move(inputs), Role::kActivation);
  if (with_moments) context.emit.SetMoments(made[0], {made[1], made[2]});
  return {{made[0]}, {moments.first, moments.second}};
}

void FusedConv::Gradient(GradientContext& context) const {
  const auto& in = context.inputs;
  const ValueId grad_y = context.grad_outputs[0];
  const ValueId mean = context.saved[0];
  const ValueId variance = context.saved[1];
  if (context.wanted[5]) {
    const ValueSpec w = context.emit.graph().value(in[5]).spec;
    context.grad_inputs[5] = context.emit.Emit(
        context.name + ".grad_w",
        std::make_shared<NormReluConvGradWeight>(geometry_, norm_.epsilon, w),
        {in[0], mean, variance, in[1], in[2], grad_y}, Role::kGradient)[0];
  }
  if (residual_ && context.wanted[6]) context.grad_inputs[6] = grad_y;
  const auto made = context.emit.Emit(
      context.name + ".grad_norm",
      std::make_shared<NormReluConvGradInput>(geometry_, norm_.epsilon),
      {grad_y, in[5], in[0], mean, variance, in[1], in[2]},
      Role::kActivationGradient);
  const Graph& graph = context.emit.graph();
  const int64_t group =
      GroupImages(graph.value(in[0]).spec, graph.value(mean).spec);
  if (context.wanted[1]) {
    context.grad_inputs[1] =
        SumOfGroups(context.emit, context.name + ".grad_gamma", made[1], group);
  }
  if (context.wanted[2]) {
    context.grad_inputs[2] =
        SumOfGroups(context.emit, context.name + ".grad_beta", made[2], group);
  }
  if (!context.wanted[0]) return;
  std::vector<ValueId> inputs = {made[0], in[0],   mean,   variance,
                                 in[1],   made[1], made[2]};
  // The gradient that x already has, unless it is the residual's of this very
  // op, is added in the same pass.
  const bool fold = context.pending[0].valid();
  if (fold) inputs.push_back(context.pending[0]);
  context.folded[0] = fold;
  context.grad_inputs[0] = context.emit.Emit(
      context.name + ".grad_x", std::make_shared<NormGrad>(norm_.epsilon, fold),
      std::move(inputs), Role::kActivationGradient)[0];
}

Result<std::vector<ValueSpec>> ImageConv::Infer(
    std::span<const ValueSpec> inputs) const {
  const ValueSpec& x = inputs[0];
  if (x.dtype != DType::kU8 || x.shape.rank() != 4 ||
      scale_.size() != static_cast<size_t>(x.shape[1]) ||
      shift_.size() != scale_.size()) {
    return Status::Usage(fmt::format(
        "needs u8 images [N, C, H, W] and a scale and shift for each channel, "
        "got {} {} and [{}]",
        x.shape.ToString(), DTypeName(x.dtype), scale_.size()));
  }
  auto made = InferConv(geometry_, x, inputs[1]);
  if (made.ok() && groups_ > 0) {
    AddMoments(inputs[1].shape[0], groups_, *made);
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
  if (!context.wanted[1]) return;
  const ValueSpec w = context.emit.graph().value(context.inputs[1]).spec;
  context.grad_inputs[1] = context.emit.Emit(
      context.name + ".grad_w",
      std::make_shared<ImageConvGradWeight>(geometry_, scale_, shift_, w),
      {context.inputs[0], context.grad_outputs[0]}, Role::kGradient)[0];
}

RepeatForm ImageConv::Repeat() const {
  return {std::make_shared<ImageConv>(geometry_, scale_, shift_), false};
}

int64_t ImageConv::Flops(std::span<const ValueSpec> inputs,
                         std::span<const ValueSpec>) const {
  return geometry_.Flops(inputs[0], inputs[1]) +
         kPrologueFlops * inputs[0].shape.elements();
}

Workspace ImageConv::Scratch(std::span<const ValueSpec> inputs,
                             std::span<const ValueSpec>) const {
  return kernels::Conv2dForwardWorkspace(
      geometry_.ShapeOf(inputs[0], inputs[1]),
      Reduction(groups_ > 0, inputs[0], std::max<int64_t>(groups_, 1)));
}

Result<std::vector<ValueSpec>> ImageConvGradWeight::Infer(
    std::span<const ValueSpec>) const {
  return std::vector<ValueSpec>{w_};
}

int64_t ImageConvGradWeight::Flops(std::span<const ValueSpec> inputs,
                                   std::span<const ValueSpec> outputs) const {
  return geometry_.Flops(inputs[0], w_) + RecomputeFlops(inputs, outputs);
}

int64_t ImageConvGradWeight::RecomputeFlops(std::span<const ValueSpec> inputs,
                                            std::span<const ValueSpec>) const {
  return kPrologueFlops * inputs[0].shape.elements();
}

Workspace ImageConvGradWeight::Scratch(std::span<const ValueSpec> inputs,
                                       std::span<const ValueSpec>) const {
  return kernels::Conv2dGradWeightWorkspace(ShapeOf(inputs[0]));
}

Result<std::vector<ValueSpec>> Moments::Infer(
    std::span<const ValueSpec> inputs) const {
  std::vector<ValueSpec> outputs;
  AddMoments(inputs[0].shape[1], groups_, outputs);
  return outputs;
}

Result<std::vector<ValueSpec>> NormReluConv::Infer(
    std::span<const ValueSpec> inputs) const {
  auto made = InferConv(geometry_, inputs[0], inputs[5]);
  if (made.ok() && with_moments_) {
    AddMoments(inputs[5].shape[0], GroupsOf(inputs[1]), *made);
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
  return geometry_.Flops(inputs[0], inputs[5]) +
         kPrologueFlops * inputs[0].shape.elements() +
         (residual_ ? 1 : 0) * outputs[0].shape.elements() +
         (with_moments_ ? 4 : 0) * outputs[0].shape.elements();
}

Workspace NormReluConv::Scratch(std::span<const ValueSpec> inputs,
                                std::span<const ValueSpec>) const {
  return WithNormVectors(
      kernels::Conv2dForwardWorkspace(
          geometry_.ShapeOf(inputs[0], inputs[5]),
          Reduction(with_moments_, inputs[0], GroupsOf(inputs[1]))),
      inputs[0].shape[1]);
}

Result<std::vector<ValueSpec>> NormReluConvGradWeight::Infer(
    std::span<const ValueSpec>) const {
  return std::vector<ValueSpec>{w_};
}

int64_t NormReluConvGradWeight::Flops(
    std::span<const ValueSpec> inputs,
    std::span<const ValueSpec> outputs) const {
  return geometry_.Flops(inputs[0], w_) + RecomputeFlops(inputs, outputs);
}

int64_t NormReluConvGradWeight::RecomputeFlops(
    std::span<const ValueSpec> inputs, std::span<const ValueSpec>) const {
  return kPrologueFlops * inputs[0].shape.elements();
}

Workspace NormReluConvGradWeight::Scratch(std::span<const ValueSpec> inputs,
                                          std::span<const ValueSpec>) const {
  return WithNormVectors(kernels::Conv2dGradWeightWorkspace(ShapeOf(inputs[0])),
                         inputs[0].shape[1]);
}

Result<std::vector<ValueSpec>> NormReluConvGradInput::Infer(
    std::span<const ValueSpec> inputs) const {
  std::vector<ValueSpec> outputs = {inputs[2]};
  AddMoments(inputs[2].shape[1], GroupsOf(inputs[3]), outputs);
  return outputs;
}

int64_t NormReluConvGradInput::Flops(std::span<const ValueSpec> inputs,
                                     std::span<const ValueSpec> outputs) const {
  // The sums behind grad_gamma and grad_beta, and the mask.
  return geometry_.Flops(inputs[2], inputs[1]) +
         4 * inputs[2].shape.elements() + RecomputeFlops(inputs, outputs);
}

int64_t NormReluConvGradInput::RecomputeFlops(
    std::span<const ValueSpec> inputs, std::span<const ValueSpec>) const {
  return kPrologueFlops * inputs[2].shape.elements();
}

Workspace NormReluConvGradInput::Scratch(std::span<const ValueSpec> inputs,
                                         std::span<const ValueSpec>) const {
  return WithNormVectors(kernels::Conv2dGradInputWorkspace(
                             geometry_.ShapeOf(inputs[2], inputs[1]),
                             Reduction(true, inputs[2], GroupsOf(inputs[3]))),
                         inputs[2].shape[1]);
}

Workspace NormGrad::Scratch(std::span<const ValueSpec> inputs,
                            std::span<const ValueSpec>) const {
  return WithNormVectors({}, inputs[1].shape[1]);
}

Result<std::vector<ValueSpec>> NormGrad::Infer(
    std::span<const ValueSpec> inputs) const {
  return std::vector<ValueSpec>{inputs[1]};
}

}  // namespace thimble::ops
