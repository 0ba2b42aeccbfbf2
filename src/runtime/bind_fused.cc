// SPDX-License-Identifier: Apache-2.0
#include "runtime/bind_fused.h"

#include "kernels/conv/conv.h"
#include "kernels/norm/norm.h"
#include "ops/batch_norm.h"
#include "ops/fused_conv.h"
#include "ops/two_pass_grad.h"
#include "runtime/groups.h"

namespace thimble::runtime {
namespace {

// What a prologue multiplies and adds, per channel, made anew in each run
// behind the kernel's own shared scratch (ops::WithNormVectors).
struct NormVectors {
  float* scale;
  float* shift;
  float* inv_std;
};

NormVectors MakeNormVectors(const BoundOp& c, int64_t channels, float epsilon,
                            const float* mean, const float* variance,
                            const float* gamma, const float* beta) {
  const size_t bytes = RoundUpToAlignment(
      static_cast<size_t>(ops::kNormVectors * channels) * sizeof(float));
  auto* base = reinterpret_cast<float*>(
      c.kernel.scratch + RoundUpToAlignment(c.kernel.workspace.shared) - bytes);
  const NormVectors v{base, base + channels, base + 2 * channels};
  kernels::BatchNormCoefficients(channels, epsilon, mean, variance, gamma, beta,
                                 v.scale, v.shift, v.inv_std);
  return v;
}

// Where the group's images begin, in elements of a batched value.
int64_t FirstElement(const ValueSpec& spec, const Group& group) {
  return group.first * spec.shape.elements_from(1);
}

// The gradient of bn(x) and its sums, or, where `Def` has no such output, the
// sums alone.
template <typename Def>
void RunGradOfNorm(const BoundOp& c, const RunContext& run, bool stores) {
  const auto& op = c.As<Def>();
  const auto shape = op.geometry().ShapeOf(c.inputs[2], c.inputs[1]);
  const int64_t group = ops::GroupImages(c.inputs[2], c.inputs[3]);
  const size_t sums = stores ? 1 : 0;  // the first of them
  ForGroups(group, run.count, [&](const Group& g) {
    const int64_t of = g.index * shape.in_channels;
    const int64_t at_x = FirstElement(c.inputs[2], g);
    const NormVectors norm =
        MakeNormVectors(c, shape.in_channels, op.epsilon(), c.In(3) + of,
                        c.In(4) + of, c.In(5), c.In(6));
    kernels::Conv2dGradInput(shape, g.images,
                             {.data = c.In(0) + FirstElement(c.inputs[0], g)},
                             {.data = c.In(1)},
                             {.data = stores ? c.Out(0) + at_x : nullptr,
                              .x = c.In(2) + at_x,
                              .scale = norm.scale,
                              .shift = norm.shift,
                              .mean = c.In(3) + of,
                              .inv_std = norm.inv_std,
                              .grad_gamma = c.Out(sums) + of,
                              .grad_beta = c.Out(sums + 1) + of},
                             c.kernel);
  });
}

}  // namespace

void RunImageConv(const BoundOp& c, const RunContext& run) {
  const auto& op = c.As<ops::ImageConv>();
  const auto shape = op.geometry().ShapeOf(c.inputs[0], c.inputs[1]);
  const bool moments = c.outputs.size() > 1;
  const int64_t group = moments ? ops::GroupImages(c.inputs[0], c.outputs[1])
                                : c.inputs[0].shape[0];
  ForGroups(group, run.count, [&](const Group& g) {
    const int64_t of = g.index * shape.out_channels;
    kernels::Conv2dForward(
        shape, g.images,
        {.data = c.In<uint8_t>(0) + FirstElement(c.inputs[0], g),
         .dtype = DType::kU8,
         .scale = op.scale().data(),
         .shift = op.shift().data()},
        {.data = c.In(1)},
        {.data = c.Out(0) + FirstElement(c.outputs[0], g),
         .mean = moments ? c.Out(1) + of : nullptr,
         .variance = moments ? c.Out(2) + of : nullptr},
        c.kernel);
  });
}

void RunImageConvGradWeight(const BoundOp& c, const RunContext& run) {
  const auto& op = c.As<ops::ImageConvGradWeight>();
  const auto shape = op.ShapeOf(c.inputs[0]);
  kernels::Conv2dGradWeight(shape, run.count,
                            {.data = c.In<uint8_t>(0),
                             .dtype = DType::kU8,
                             .scale = op.scale().data(),
                             .shift = op.shift().data()},
                            {.data = c.In(1)},
                            {.data = c.Out(0), .accumulate = c.Adds(0, run)},
                            c.kernel);
}

void RunMoments(const BoundOp& c, const RunContext& run) {
  const auto shape = ops::BatchNormShapeOf(c.inputs[0]);
  const int64_t group = ops::GroupImages(c.inputs[0], c.outputs[0]);
  ForGroups(group, run.count, [&](const Group& g) {
    const int64_t of = g.index * shape.channels;
    kernels::BatchNormMoments(shape, g.images,
                              {.data = c.In(0) + FirstElement(c.inputs[0], g)},
                              c.Out(0) + of, c.Out(1) + of, c.kernel);
  });
}

void RunNormReluConv(const BoundOp& c, const RunContext& run) {
  const auto& op = c.As<ops::NormReluConv>();
  const auto shape = op.geometry().ShapeOf(c.inputs[0], c.inputs[5]);
  const int64_t group = ops::GroupImages(c.inputs[0], c.inputs[1]);
  ForGroups(group, run.count, [&](const Group& g) {
    const int64_t of_x = g.index * shape.in_channels;
    const int64_t of_y = g.index * shape.out_channels;
    const int64_t at_y = FirstElement(c.outputs[0], g);
    const NormVectors norm =
        MakeNormVectors(c, shape.in_channels, op.epsilon(), c.In(1) + of_x,
                        c.In(2) + of_x, c.In(3), c.In(4));
    kernels::Conv2dForward(
        shape, g.images,
        {.data = c.In(0) + FirstElement(c.inputs[0], g),
         .scale = norm.scale,
         .shift = norm.shift,
         .relu = true},
        {.data = c.In(5)},
        {.data = c.Out(0) + at_y,
         .residual = op.residual() ? c.In(6) + at_y : nullptr,
         .mean = op.with_moments() ? c.Out(1) + of_y : nullptr,
         .variance = op.with_moments() ? c.Out(2) + of_y : nullptr},
        c.kernel);
  });
}

void RunNormReluConvGradInput(const BoundOp& c, const RunContext& run) {
  RunGradOfNorm<ops::NormReluConvGradInput>(c, run, /*stores=*/true);
}

void RunNormReluConvGradSums(const BoundOp& c, const RunContext& run) {
  RunGradOfNorm<ops::NormReluConvGradSums>(c, run, /*stores=*/false);
}

void RunNormReluConvGradRest(const BoundOp& c, const RunContext& run) {
  const auto& op = c.As<ops::NormReluConvGradRest>();
  const auto shape = op.geometry().ShapeOf(c.inputs[2], c.inputs[1]);
  const int64_t group = ops::GroupImages(c.inputs[2], c.inputs[3]);
  ForGroups(group, run.count, [&](const Group& g) {
    const int64_t of = g.index * shape.in_channels;
    const int64_t at_x = FirstElement(c.inputs[2], g);
    const NormVectors norm =
        MakeNormVectors(c, shape.in_channels, op.epsilon(), c.In(3) + of,
                        c.In(4) + of, c.In(5), c.In(6));
    kernels::Conv2dNormGrad(
        shape, g.images, {.data = c.In(0) + FirstElement(c.inputs[0], g)},
        {.data = c.In(1)},
        {.data = c.Out(0) + at_x,
         .x = c.In(2) + at_x,
         .scale = norm.scale,
         .shift = norm.shift,
         .sums = {.gamma = c.In(5),
                  .mean = c.In(3) + of,
                  .inv_std = norm.inv_std,
                  .grad_gamma = c.In(7) + of,
                  .grad_beta = c.In(8) + of},
         .residual = op.with_other() ? c.In(9) + at_x : nullptr},
        c.kernel);
  });
}

void RunNormReluConvGradWeight(const BoundOp& c, const RunContext& run) {
  const auto& op = c.As<ops::NormReluConvGradWeight>();
  const auto shape = op.ShapeOf(c.inputs[0]);
  const int64_t group = ops::GroupImages(c.inputs[0], c.inputs[1]);
  ForGroups(group, run.count, [&](const Group& g) {
    const int64_t of = g.index * shape.in_channels;
    const NormVectors norm =
        MakeNormVectors(c, shape.in_channels, op.epsilon(), c.In(1) + of,
                        c.In(2) + of, c.In(3), c.In(4));
    kernels::Conv2dGradWeight(
        shape, g.images,
        {.data = c.In(0) + FirstElement(c.inputs[0], g),
         .scale = norm.scale,
         .shift = norm.shift,
         .relu = true},
        {.data = c.In(5) + FirstElement(c.inputs[5], g)},
        {.data = c.Out(0), .accumulate = g.index > 0 || c.Adds(0, run)},
        c.kernel);
  });
}

void RunNormGrad(const BoundOp& c, const RunContext& run) {
  const auto& op = c.As<ops::NormGrad>();
  const auto shape = ops::BatchNormShapeOf(c.inputs[1]);
  const int64_t group = ops::GroupImages(c.inputs[1], c.inputs[2]);
  ForGroups(group, run.count, [&](const Group& g) {
    const int64_t of = g.index * shape.channels;
    const int64_t at = FirstElement(c.inputs[1], g);
    // The shift is not used here; any beta will do.
    const NormVectors norm =
        MakeNormVectors(c, shape.channels, op.epsilon(), c.In(2) + of,
                        c.In(3) + of, c.In(4), c.In(4));
    kernels::BatchNormGradRest(
        shape, g.images, {.data = c.In(0) + at}, {.data = c.In(1) + at},
        {.gamma = c.In(4),
         .mean = c.In(2) + of,
         .inv_std = norm.inv_std,
         .grad_gamma = c.In(5) + of,
         .grad_beta = c.In(6) + of},
        {.data = op.with_other() ? c.In(7) + at : nullptr}, c.Out(0) + at,
        DType::kF32, c.kernel);
  });
}

}  // namespace thimble::runtime
