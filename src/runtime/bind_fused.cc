// SPDX-License-Identifier: Apache-2.0
#include "runtime/bind_fused.h"

#include "kernels/conv/conv.h"
#include "kernels/norm/norm.h"
#include "ops/batch_norm.h"
#include "ops/fused_conv.h"

namespace thimble::runtime {
namespace {

// What a prologue multiplies and adds, per channel, made anew in each run
// behind the kernel's own shared scratch (ops::WithNormVectors).
struct NormVectors {
  float* scale;
  float* shift;
  float* inv_std;
};

NormVectors MakeNormVectors(const BindContext& c, int64_t channels,
                            float epsilon, const float* mean,
                            const float* variance, const float* gamma,
                            const float* beta) {
  const size_t bytes = RoundUpToAlignment(
      static_cast<size_t>(ops::kNormVectors * channels) * sizeof(float));
  auto* base = reinterpret_cast<float*>(
      c.kernel.scratch + RoundUpToAlignment(c.kernel.workspace.shared) - bytes);
  const NormVectors v{base, base + channels, base + 2 * channels};
  kernels::BatchNormCoefficients(channels, epsilon, mean, variance, gamma, beta,
                                 v.scale, v.shift, v.inv_std);
  return v;
}

}  // namespace

BoundOp BindImageConv(const BindContext& c) {
  const auto& op = c.As<ops::ImageConv>();
  const auto shape = op.geometry().ShapeOf(c.inputs[0], c.inputs[1]);
  const bool moments = c.outputs.size() > 1;
  return [c, &op, shape, moments](const RunContext& run) {
    kernels::Conv2dForward(shape, run.count,
                           {.data = c.In<uint8_t>(0),
                            .dtype = DType::kU8,
                            .scale = op.scale().data(),
                            .shift = op.shift().data()},
                           {.data = c.In(1)},
                           {.data = c.Out(0),
                            .mean = moments ? c.Out(1) : nullptr,
                            .variance = moments ? c.Out(2) : nullptr},
                           c.kernel);
  };
}

BoundOp BindImageConvGradWeight(const BindContext& c) {
  const auto& op = c.As<ops::ImageConvGradWeight>();
  const auto shape = op.ShapeOf(c.inputs[0]);
  return [c, &op, shape](const RunContext& run) {
    kernels::Conv2dGradWeight(shape, run.count,
                              {.data = c.In<uint8_t>(0),
                               .dtype = DType::kU8,
                               .scale = op.scale().data(),
                               .shift = op.shift().data()},
                              {.data = c.In(1)}, {.data = c.Out(0)}, c.kernel);
  };
}

BoundOp BindMoments(const BindContext& c) {
  const auto shape = ops::BatchNormShapeOf(c.inputs[0]);
  return [c, shape](const RunContext& run) {
    kernels::BatchNormMoments(shape, run.count, {.data = c.In(0)}, c.Out(0),
                              c.Out(1), c.kernel);
  };
}

BoundOp BindNormReluConv(const BindContext& c) {
  const auto& op = c.As<ops::NormReluConv>();
  const auto shape = op.geometry().ShapeOf(c.inputs[0], c.inputs[5]);
  return [c, &op, shape](const RunContext& run) {
    const NormVectors norm = MakeNormVectors(
        c, shape.in_channels, op.epsilon(), c.In(1), c.In(2), c.In(3), c.In(4));
    kernels::Conv2dForward(shape, run.count,
                           {.data = c.In(0),
                            .scale = norm.scale,
                            .shift = norm.shift,
                            .relu = true},
                           {.data = c.In(5)},
                           {.data = c.Out(0),
                            .residual = op.residual() ? c.In(6) : nullptr,
                            .mean = op.with_moments() ? c.Out(1) : nullptr,
                            .variance = op.with_moments() ? c.Out(2) : nullptr},
                           c.kernel);
  };
}

BoundOp BindNormReluConvGradInput(const BindContext& c) {
  const auto& op = c.As<ops::NormReluConvGradInput>();
  const auto shape = op.geometry().ShapeOf(c.inputs[2], c.inputs[1]);
  return [c, &op, shape](const RunContext& run) {
    const NormVectors norm = MakeNormVectors(
        c, shape.in_channels, op.epsilon(), c.In(3), c.In(4), c.In(5), c.In(6));
    kernels::Conv2dGradInput(shape, run.count, {.data = c.In(0)},
                             {.data = c.In(1)},
                             {.data = c.Out(0),
                              .x = c.In(2),
                              .scale = norm.scale,
                              .shift = norm.shift,
                              .mean = c.In(3),
                              .inv_std = norm.inv_std,
                              .grad_gamma = c.Out(1),
                              .grad_beta = c.Out(2)},
                             c.kernel);
  };
}

BoundOp BindNormReluConvGradWeight(const BindContext& c) {
  const auto& op = c.As<ops::NormReluConvGradWeight>();
  const auto shape = op.ShapeOf(c.inputs[0]);
  return [c, &op, shape](const RunContext& run) {
    const NormVectors norm = MakeNormVectors(
        c, shape.in_channels, op.epsilon(), c.In(1), c.In(2), c.In(3), c.In(4));
    kernels::Conv2dGradWeight(shape, run.count,
                              {.data = c.In(0),
                               .scale = norm.scale,
                               .shift = norm.shift,
                               .relu = true},
                              {.data = c.In(5)}, {.data = c.Out(0)}, c.kernel);
  };
}

BoundOp BindNormGrad(const BindContext& c) {
  const auto& op = c.As<ops::NormGrad>();
  const auto shape = ops::BatchNormShapeOf(c.inputs[1]);
  return [c, &op, shape](const RunContext& run) {
    // The shift is not used here; any beta will do.
    const NormVectors norm = MakeNormVectors(
        c, shape.channels, op.epsilon(), c.In(2), c.In(3), c.In(4), c.In(4));
    kernels::BatchNormGradRest(shape, run.count, {.data = c.In(0)},
                               {.data = c.In(1)},
                               {.gamma = c.In(4),
                                .mean = c.In(2),
                                .inv_std = norm.inv_std,
                                .grad_gamma = c.In(5),
                                .grad_beta = c.In(6)},
                               {.data = op.with_other() ? c.In(7) : nullptr},
                               c.Out(0), DType::kF32, c.kernel);
  };
}

}  // namespace thimble::runtime
