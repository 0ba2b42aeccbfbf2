// SPDX-License-Identifier: Apache-2.0
#include "ops/pool.h"

#include <fmt/format.h>

#include "base/check.h"
#include "ops/bound_op.h"
#include "ops/storage.h"

namespace thimble::ops {
namespace {

Result<ValueSpec> PooledSpec(const ValueSpec& x, const Window& window) {
  TH_RETURN_IF_ERROR(CheckFloat("x", x));
  if (x.shape.rank() != 4) {
    return Status::Usage(
        fmt::format("needs images [N, C, H, W], got {}", x.shape.ToString()));
  }
  if (window.kernel < 1 || window.kernel > kernels::kMaxPoolKernel ||
      window.stride < 1 || window.padding < 0 ||
      window.padding > window.kernel / 2 ||
      x.shape[2] + 2 * window.padding < window.kernel ||
      x.shape[3] + 2 * window.padding < window.kernel) {
    return Status::Usage(fmt::format(
        "a window [{}, {}] (stride {}, padding {}) does not fit images {}; "
        "kernels go up to {}, padding up to half a kernel",
        window.kernel, window.kernel, window.stride, window.padding,
        x.shape.ToString(), kernels::kMaxPoolKernel));
  }
  const kernels::PoolShape s = PoolShapeOf(x, window);
  return ValueSpec{{x.shape[0], x.shape[1], s.out_height(), s.out_width()},
                   DType::kF32,
                   x.axis};
}

int64_t WindowFlops(const ValueSpec& y, const Window& window) {
  return y.shape.elements() * window.kernel * window.kernel;
}

}  // namespace

kernels::PoolShape PoolShapeOf(const ValueSpec& x, const Window& window) {
  return {.channels = x.shape[1],
          .height = x.shape[2],
          .width = x.shape[3],
          .kernel = window.kernel,
          .stride = window.stride,
          .padding = window.padding};
}

Result<std::vector<ValueSpec>> MaxPool::Infer(
    std::span<const ValueSpec> inputs) const {
  auto y = PooledSpec(inputs[0], window_);
  if (!y.ok()) return y.status();
  std::vector<ValueSpec> outputs = {*y};
  if (with_winner_) outputs.push_back({y->shape, DType::kU8, y->axis});
  return outputs;
}

ForwardResult MaxPool::Forward(ForwardContext& context) const {
  if (context.mode == Mode::kEvaluate) return OpDef::Forward(context);
  const auto made =
      context.emit.Emit(context.name, std::make_shared<MaxPool>(window_, true),
                        {context.inputs[0]}, Role::kActivation);
  return {{made[0]}, {made[1]}};
}

void MaxPool::Gradient(GradientContext& context) const {
  if (!context.wanted[0]) return;
  const ValueSpec x = context.emit.graph().value(context.inputs[0]).spec;
  context.grad_inputs[0] = context.emit.Emit(
      context.name + ".grad_x", std::make_shared<MaxPoolGrad>(window_, x),
      {context.saved[0], context.grad_outputs[0]},
      Role::kActivationGradient)[0];
}

int64_t MaxPool::Flops(std::span<const ValueSpec>,
                       std::span<const ValueSpec> outputs) const {
  return WindowFlops(outputs[0], window_);
}

Result<std::vector<ValueSpec>> MaxPoolGrad::Infer(
    std::span<const ValueSpec> inputs) const {
  TH_RETURN_IF_ERROR(CheckStored("winner", inputs[kWinner], DType::kU8));
  TH_RETURN_IF_ERROR(CheckFloat("grad_y", inputs[kGradY]));
  return std::vector<ValueSpec>{x_};
}

Result<std::vector<ValueSpec>> AveragePool::Infer(
    std::span<const ValueSpec> inputs) const {
  auto y = PooledSpec(inputs[0], window_);
  if (!y.ok()) return y.status();
  return std::vector<ValueSpec>{*y};
}

void AveragePool::Gradient(GradientContext& context) const {
  if (!context.wanted[0]) return;
  const ValueSpec x = context.emit.graph().value(context.inputs[0]).spec;
  context.grad_inputs[0] = context.emit.Emit(
      context.name + ".grad_x", std::make_shared<AveragePoolGrad>(window_, x),
      {context.grad_outputs[0]}, Role::kActivationGradient)[0];
}

int64_t AveragePool::Flops(std::span<const ValueSpec>,
                           std::span<const ValueSpec> outputs) const {
  return WindowFlops(outputs[0], window_);
}

Result<std::vector<ValueSpec>> AveragePoolGrad::Infer(
    std::span<const ValueSpec> inputs) const {
  TH_RETURN_IF_ERROR(CheckFloats(inputs, {"grad_y"}));
  return std::vector<ValueSpec>{x_};
}

Result<std::vector<ValueSpec>> GlobalAveragePool::Infer(
    std::span<const ValueSpec> inputs) const {
  const ValueSpec& x = inputs[0];
  TH_RETURN_IF_ERROR(CheckFloat("x", x));
  if (x.shape.rank() != 4) {
    return Status::Usage(
        fmt::format("needs images [N, C, H, W], got {}", x.shape.ToString()));
  }
  return std::vector<ValueSpec>{
      {{x.shape[0], x.shape[1]}, DType::kF32, x.axis}};
}

void GlobalAveragePool::Gradient(GradientContext& context) const {
  if (!context.wanted[0]) return;
  const ValueSpec x = context.emit.graph().value(context.inputs[0]).spec;
  context.grad_inputs[0] = context.emit.Emit(
      context.name + ".grad_x", std::make_shared<GlobalAveragePoolGrad>(x),
      {context.grad_outputs[0]}, Role::kActivationGradient)[0];
}

Result<std::vector<ValueSpec>> GlobalAveragePoolGrad::Infer(
    std::span<const ValueSpec> inputs) const {
  TH_RETURN_IF_ERROR(CheckFloats(inputs, {"grad_y"}));
  return std::vector<ValueSpec>{x_};
}

void MaxPool::Run(const BoundOp& c, const RunContext& run) const {
  const auto shape = PoolShapeOf(c.in_spec(0), window());
  uint8_t* winner = c.outputs.size() > 1 ? c.Out(1).u8() : nullptr;
  kernels::MaxPool(shape, run.Rows(c.in_spec(0)), c.In(0), c.Out(0), winner,
                   c.kernel);
}

void MaxPoolGrad::Run(const BoundOp& c, const RunContext& run) const {
  const auto shape = PoolShapeOf(c.out_spec(0), window());
  kernels::MaxPoolGrad(shape, run.Rows(c.in_spec(kWinner)), c.In(kWinner).u8(),
                       c.In(kGradY), c.Out(0), c.kernel);
}

void AveragePool::Run(const BoundOp& c, const RunContext& run) const {
  const auto shape = PoolShapeOf(c.in_spec(0), window());
  kernels::AveragePool(shape, run.Rows(c.in_spec(0)), c.In(0), c.Out(0),
                       c.kernel);
}

void AveragePoolGrad::Run(const BoundOp& c, const RunContext& run) const {
  const auto shape = PoolShapeOf(c.out_spec(0), window());
  kernels::AveragePoolGrad(shape, run.Rows(c.in_spec(0)), c.In(0), c.Out(0),
                           c.kernel);
}

void GlobalAveragePool::Run(const BoundOp& c, const RunContext& run) const {
  const ValueSpec& x = c.in_spec(0);
  kernels::GlobalAveragePool(run.Rows(x), x.shape[1], x.shape.elements_from(2),
                             c.In(0), c.Out(0), c.kernel);
}

void GlobalAveragePoolGrad::Run(const BoundOp& c, const RunContext& run) const {
  const ValueSpec& x = c.out_spec(0);
  kernels::GlobalAveragePoolGrad(run.Rows(x), x.shape[1],
                                 x.shape.elements_from(2), c.In(0), c.Out(0),
                                 c.kernel);
}

}  // namespace thimble::ops
