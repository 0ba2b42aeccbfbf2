// SPDX-License-Identifier: Apache-2.0
#include "ops/fused_conv.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "base/check.h"
#include "ops/accumulate.h"
#include "ops/norm_relu_conv.h"
#include "ops/storage.h"

namespace thimble::ops {
namespace {

// Sums a parameter's gradients of all groups, where there are several.
ValueId SumOfGroups(Emitter& emit, const std::string& name, ValueId gradients,
                    int64_t group_images, AxisId axis) {
  if (GroupsOf(emit.graph().value(gradients).spec) == 1) return gradients;
  return emit.Emit(name, std::make_shared<Accumulate>(group_images, axis),
                   {gradients}, Role::kGradient)[0];
}

}  // namespace

Result<std::vector<ValueSpec>> FusedConv::Infer(
    std::span<const ValueSpec> inputs) const {
  TH_RETURN_IF_ERROR(CheckFloats(
      inputs, {"x", Vector("gamma"), Vector("beta"), Vector("running_mean"),
               Vector("running_variance"), Weight("w"), "residual"}));
  auto normed = BatchNorm(norm_).Infer(inputs.subspan(0, 5));
  if (!normed.ok()) return normed.status();
  auto made = geometry_.Infer(inputs[kX], inputs[kW]);
  if (made.ok() && residual_ && inputs[kResidual].shape != (*made)[0].shape) {
    return Status::Usage(fmt::format("the sum needs {} on both sides, got {}",
                                     (*made)[0].shape.ToString(),
                                     inputs[kResidual].shape.ToString()));
  }
  return made;
}

ForwardResult FusedConv::Forward(ForwardContext& context) const {
  const auto& in = context.inputs;
  const bool train = context.mode == Mode::kTrain;
  ValuePair moments = {in[kRunningMean], in[kRunningVariance]};
  if (train) {
    moments = context.emit.MomentsOf(in[kX]);
    TrackMoments(context, norm_, in[kX], moments,
                 {in[kRunningMean], in[kRunningVariance]});
  }
  std::vector<ValueId> inputs = {in[kX],     moments.first, moments.second,
                                 in[kGamma], in[kBeta],     in[kW]};
  if (residual_) inputs.push_back(in[kResidual]);
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
  if (context.wanted[kW]) {
    const ValueSpec w = context.emit.graph().value(in[kW]).spec;
    context.grad_inputs[kW] = context.emit.Emit(
        context.name + ".grad_w",
        std::make_shared<NormReluConvGradWeight>(geometry_, norm_.epsilon, w),
        {in[kX], mean, variance, in[kGamma], in[kBeta], grad_y},
        Role::kGradient)[0];
  }
  if (residual_ && context.wanted[kResidual])
    context.grad_inputs[kResidual] = grad_y;
  const auto made = context.emit.Emit(
      context.name + ".grad_norm",
      std::make_shared<NormReluConvGradInput>(geometry_, norm_.epsilon),
      {grad_y, in[kW], in[kX], mean, variance, in[kGamma], in[kBeta]},
      Role::kActivationGradient);
  const Graph& graph = context.emit.graph();
  const ValueSpec x = graph.value(in[kX]).spec;
  const int64_t group = GroupImages(x, graph.value(mean).spec);
  if (context.wanted[kGamma]) {
    context.grad_inputs[kGamma] = SumOfGroups(
        context.emit, context.name + ".grad_gamma", made[1], group, x.axis);
  }
  if (context.wanted[kBeta]) {
    context.grad_inputs[kBeta] = SumOfGroups(
        context.emit, context.name + ".grad_beta", made[2], group, x.axis);
  }
  if (!context.wanted[kX]) return;
  std::vector<ValueId> inputs = {made[0],    in[kX],  mean,   variance,
                                 in[kGamma], made[1], made[2]};
  // The gradient that x already has, unless it is the residual's of this very
  // op, is added in the same pass.
  const bool fold = context.pending[kX].valid();
  if (fold) inputs.push_back(context.pending[kX]);
  context.folded[kX] = fold;
  context.grad_inputs[kX] = context.emit.Emit(
      context.name + ".grad_x", std::make_shared<NormGrad>(norm_.epsilon, fold),
      std::move(inputs), Role::kActivationGradient)[0];
}

}  // namespace thimble::ops
