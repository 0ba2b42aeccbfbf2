// SPDX-License-Identifier: Apache-2.0
#include "ops/batch_norm.h"

#include <fmt/format.h>

namespace thimble::ops {
namespace {

ValueSpec PerChannel(const ValueSpec& x) {
  return {{x.shape[1]}, DType::kF32, false};
}

}  // namespace

kernels::BatchNormShape BatchNormShapeOf(const ValueSpec& x) {
  return {.channels = x.shape[1], .pixels = x.shape.elements_from(2)};
}

ValueSpec StatisticsSpec(int64_t channels, int64_t groups) {
  const Shape shape = groups > 1 ? Shape{groups, channels} : Shape{channels};
  return {shape, DType::kF32, false};
}

int64_t GroupsOf(const ValueSpec& statistics) {
  return statistics.shape.rank() == 2 ? statistics.shape[0] : 1;
}

int64_t GroupImages(const ValueSpec& x, const ValueSpec& statistics) {
  return x.shape[0] / GroupsOf(statistics);
}

void TrackMoments(ForwardContext& context, const BatchNormAttributes& norm,
                  ValueId x, ValuePair moments, ValuePair running) {
  const Graph& graph = context.emit.graph();
  const ValueSpec& of = graph.value(x).spec;
  const auto next = context.emit.Emit(
      context.name + ".track",
      std::make_shared<BatchNormTrack>(
          norm.momentum, of.shape.elements_from(2),
          GroupImages(of, graph.value(moments.first).spec)),
      {moments.first, moments.second, running.first, running.second},
      Role::kStatistic);
  context.emit.CommitAtUpdate(running.first, next[0]);
  context.emit.CommitAtUpdate(running.second, next[1]);
}

Result<std::vector<ValueSpec>> BatchNorm::Infer(
    std::span<const ValueSpec> inputs) const {
  const ValueSpec& x = inputs[0];
  if (!IsF32(x, 2) && !IsF32(x, 4)) {
    return Status::Usage(
        fmt::format("needs f32 values [N, C] or [N, C, H, W], got {} {}",
                    x.shape.ToString(), DTypeName(x.dtype)));
  }
  for (const ValueSpec& other : inputs.subspan(1)) {
    if (!IsF32(other, 1) || other.shape[0] != x.shape[1]) {
      return Status::Usage(fmt::format(
          "needs f32 parameters [C] for values {}, got {} {}",
          x.shape.ToString(), other.shape.ToString(), DTypeName(other.dtype)));
    }
  }
  if (!(attributes_.epsilon > 0.0f) || !(attributes_.momentum >= 0.0f) ||
      !(attributes_.momentum <= 1.0f)) {
    return Status::Usage(
        fmt::format("needs epsilon > 0 and momentum in [0, 1], got {} and {}",
                    attributes_.epsilon, attributes_.momentum));
  }
  return std::vector<ValueSpec>{x};
}

ForwardResult BatchNorm::Forward(ForwardContext& context) const {
  const auto& in = context.inputs;
  if (context.mode == Mode::kEvaluate) {
    return {
        context.emit.Emit(context.name,
                          std::make_shared<BatchNormApply>(attributes_.epsilon),
                          {in.begin(), in.end()}, Role::kActivation),
        {}};
  }
  const auto made = context.emit.Emit(
      context.name,
      std::make_shared<BatchNormTrain>(attributes_.epsilon,
                                       context.emit.statistics_groups()),
      {in[0], in[1], in[2]}, Role::kActivation);
  context.emit.SetRole(made[1], Role::kStatistic);
  context.emit.SetRole(made[2], Role::kStatistic);
  TrackMoments(context, attributes_, in[0], {made[1], made[2]}, {in[3], in[4]});
  return {{made[0]}, {made[1], made[2]}};
}

void BatchNorm::Gradient(GradientContext& context) const {
  const auto made = context.emit.Emit(
      context.name + ".grad",
      std::make_shared<BatchNormGrad>(attributes_.epsilon, context.wanted[0]),
      {context.inputs[0], context.inputs[1], context.saved[0], context.saved[1],
       context.grad_outputs[0]},
      Role::kActivationGradient);
  if (context.wanted[1]) context.grad_inputs[1] = made[0];
  if (context.wanted[2]) context.grad_inputs[2] = made[1];
  if (context.wanted[0]) context.grad_inputs[0] = made[2];
}

RepeatForm BatchNormTrain::Repeat() const {
  return {std::make_shared<BatchNormApply>(epsilon_), true};
}

Result<std::vector<ValueSpec>> BatchNormTrain::Infer(
    std::span<const ValueSpec> inputs) const {
  const ValueSpec statistics = StatisticsSpec(inputs[0].shape[1], groups_);
  return std::vector<ValueSpec>{inputs[0], statistics, statistics};
}

Result<std::vector<ValueSpec>> BatchNormApply::Infer(
    std::span<const ValueSpec> inputs) const {
  return std::vector<ValueSpec>{inputs[0]};
}

Result<std::vector<ValueSpec>> BatchNormGrad::Infer(
    std::span<const ValueSpec> inputs) const {
  std::vector<ValueSpec> outputs = {PerChannel(inputs[0]),
                                    PerChannel(inputs[0])};
  if (with_grad_x_) outputs.push_back(inputs[0]);
  return outputs;
}

Result<std::vector<ValueSpec>> BatchNormTrack::Infer(
    std::span<const ValueSpec> inputs) const {
  return std::vector<ValueSpec>{inputs[2], inputs[3]};
}

}  // namespace thimble::ops
