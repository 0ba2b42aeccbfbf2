// SPDX-License-Identifier: Apache-2.0
#include "ops/batch_norm.h"

#include <fmt/format.h>

#include "base/check.h"
#include "ops/bound_op.h"
#include "ops/groups.h"
#include "ops/storage.h"

namespace thimble::ops {
namespace {

ValueSpec PerChannel(const ValueSpec& x) { return {{x.shape[1]}, DType::kF32}; }

}  // namespace

kernels::BatchNormShape BatchNormShapeOf(const ValueSpec& x) {
  return {.channels = x.shape[1], .pixels = x.shape.elements_from(2)};
}

ValueSpec StatisticsSpec(int64_t channels, int64_t groups) {
  const Shape shape = groups > 1 ? Shape{groups, channels} : Shape{channels};
  return {shape, DType::kF32};
}

void AddStatistics(int64_t channels, int64_t groups,
                   std::vector<ValueSpec>& outputs) {
  outputs.insert(outputs.end(), 2, StatisticsSpec(channels, groups));
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
          GroupImages(of, graph.value(moments.first).spec), of.axis),
      {moments.first, moments.second, running.first, running.second},
      Role::kStatistic);
  context.emit.CommitAtUpdate(running.first, next[0]);
  context.emit.CommitAtUpdate(running.second, next[1]);
}

Result<std::vector<ValueSpec>> BatchNorm::Infer(
    std::span<const ValueSpec> inputs) const {
  TH_RETURN_IF_ERROR(CheckFloats(
      inputs, {"x", Vector("gamma"), Vector("beta"), Vector("running_mean"),
               Vector("running_variance")}));
  const ValueSpec& x = inputs[kX];
  if (x.shape.rank() != 2 && x.shape.rank() != 4) {
    return Status::Usage(fmt::format(
        "needs values [N, C] or [N, C, H, W], got {}", x.shape.ToString()));
  }
  for (const ValueSpec& other : inputs.subspan(1)) {
    if (other.shape.rank() != 1 || other.shape[0] != x.shape[1]) {
      return Status::Usage(
          fmt::format("needs parameters [C] for values {}, got {}",
                      x.shape.ToString(), other.shape.ToString()));
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
      {in[kX], in[kGamma], in[kBeta]}, Role::kActivation);
  context.emit.SetRole(made[1], Role::kStatistic);
  context.emit.SetRole(made[2], Role::kStatistic);
  TrackMoments(context, attributes_, in[kX], {made[1], made[2]},
               {in[kRunningMean], in[kRunningVariance]});
  return {{made[0]}, {made[1], made[2]}};
}

void BatchNorm::Gradient(GradientContext& context) const {
  const auto made = context.emit.Emit(
      context.name + ".grad",
      std::make_shared<BatchNormGrad>(attributes_.epsilon, context.wanted[kX]),
      {context.inputs[kX], context.inputs[kGamma], context.saved[0],
       context.saved[1], context.grad_outputs[0]},
      Role::kActivationGradient);
  if (context.wanted[kGamma]) context.grad_inputs[kGamma] = made[0];
  if (context.wanted[kBeta]) context.grad_inputs[kBeta] = made[1];
  if (context.wanted[kX]) context.grad_inputs[kX] = made[2];
}

RepeatForm BatchNormTrain::Repeat() const {
  return {std::make_shared<BatchNormApply>(epsilon_), true};
}

Result<std::vector<ValueSpec>> BatchNormTrain::Infer(
    std::span<const ValueSpec> inputs) const {
  TH_RETURN_IF_ERROR(
      CheckFloats(inputs, {"x", Vector("gamma"), Vector("beta")}));
  const ValueSpec statistics = StatisticsSpec(inputs[kX].shape[1], groups_);
  return std::vector<ValueSpec>{inputs[kX], statistics, statistics};
}

Result<std::vector<ValueSpec>> BatchNormApply::Infer(
    std::span<const ValueSpec> inputs) const {
  TH_RETURN_IF_ERROR(CheckFloats(inputs, {"x", Vector("gamma"), Vector("beta"),
                                          Vector("mean"), Vector("variance")}));
  return std::vector<ValueSpec>{inputs[kX]};
}

Result<std::vector<ValueSpec>> BatchNormGrad::Infer(
    std::span<const ValueSpec> inputs) const {
  TH_RETURN_IF_ERROR(CheckFloats(inputs, {"x", Vector("gamma"), Vector("mean"),
                                          Vector("variance"), "grad_y"}));
  std::vector<ValueSpec> outputs = {PerChannel(inputs[kX]),
                                    PerChannel(inputs[kX])};
  if (with_grad_x_) outputs.push_back(inputs[kX]);
  return outputs;
}

Result<std::vector<ValueSpec>> BatchNormTrack::Infer(
    std::span<const ValueSpec> inputs) const {
  TH_RETURN_IF_ERROR(CheckFloats(
      inputs, {Vector("mean"), Vector("variance"), Vector("running_mean"),
               Vector("running_variance")}));
  return std::vector<ValueSpec>{inputs[kRunningMean], inputs[kRunningVariance]};
}

void BatchNormTrain::Run(const BoundOp& c, const RunContext& run) const {
  const auto shape = BatchNormShapeOf(c.in_spec(kX));
  const int64_t group = GroupImages(c.in_spec(kX), c.out_spec(1));
  ForGroups(group, run.Rows(c.in_spec(kX)), [&](const Group& g) {
    const int64_t at = g.first * shape.channels * shape.pixels;
    const int64_t of = g.index * shape.channels;
    kernels::BatchNormTrain(shape, g.images, epsilon_, c.In(kX).From(at),
                            c.In(kGamma).f32(), c.In(kBeta).f32(),
                            c.Out(0).From(at), c.Out(1).f32() + of,
                            c.Out(2).f32() + of, c.kernel);
  });
}

void BatchNormApply::Run(const BoundOp& c, const RunContext& run) const {
  const auto shape = BatchNormShapeOf(c.in_spec(kX));
  const int64_t group = GroupImages(c.in_spec(kX), c.in_spec(kMean));
  ForGroups(group, run.Rows(c.in_spec(kX)), [&](const Group& g) {
    const int64_t at = g.first * shape.channels * shape.pixels;
    const int64_t of = g.index * shape.channels;
    kernels::BatchNormApply(shape, g.images, epsilon_, c.In(kX).From(at),
                            c.In(kGamma).f32(), c.In(kBeta).f32(),
                            c.In(kMean).f32() + of, c.In(kVariance).f32() + of,
                            c.Out(0).From(at), c.kernel);
  });
}

void BatchNormGrad::Run(const BoundOp& c, const RunContext& run) const {
  const auto shape = BatchNormShapeOf(c.in_spec(kX));
  const int64_t group = GroupImages(c.in_spec(kX), c.in_spec(kMean));
  const kernels::Tensor grad_x = c.OutOrNone(2);
  TH_CHECK((c.carried & 1) == (c.carried >> 1));  // one flag for both sums
  ForGroups(group, run.Rows(c.in_spec(kX)), [&](const Group& g) {
    const int64_t at = g.first * shape.channels * shape.pixels;
    const int64_t of = g.index * shape.channels;
    kernels::BatchNormGrad(shape, g.images, epsilon_, c.In(kX).From(at),
                           c.In(kGamma).f32(), c.In(kMean).f32() + of,
                           c.In(kVariance).f32() + of, c.In(kGradY).From(at),
                           grad_x.From(at), c.Out(0).f32(), c.Out(1).f32(),
                           c.kernel, g.index > 0 || c.Adds(0, run));
  });
}

void BatchNormTrack::Run(const BoundOp& c, const RunContext& run) const {
  // From the committed statistics through all groups, microbatch after
  // microbatch; the update commits the end of it.
  const float* mean =
      c.Adds(0, run) ? c.Out(0).f32() : c.In(kRunningMean).f32();
  const float* variance =
      c.Adds(1, run) ? c.Out(1).f32() : c.In(kRunningVariance).f32();
  const int64_t channels = c.in_spec(kRunningMean).shape[0];
  ForGroups(group_images(), run.PartOf(axis_).count, [&](const Group& g) {
    const int64_t of = g.index * channels;
    kernels::BatchNormUpdateRunning(channels, g.images * positions(),
                                    momentum(), c.In(kMean).f32() + of,
                                    c.In(kVariance).f32() + of, mean, variance,
                                    c.Out(0).f32(), c.Out(1).f32(), c.kernel);
    mean = c.Out(0).f32();
    variance = c.Out(1).f32();
  });
}

}  // namespace thimble::ops
