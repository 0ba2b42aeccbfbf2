// SPDX-License-Identifier: Apache-2.0
#include "ops/linear.h"

#include <fmt/format.h>

#include "base/check.h"
#include "ops/bound_op.h"
#include "ops/gradient_out.h"
#include "ops/storage.h"

namespace thimble::ops {
namespace {

// rows × in × out, whichever two of the three matrices are at hand.
int64_t MatmulFlops(int64_t rows, const ValueSpec& w) {
  return 2 * rows * w.kept();
}

}  // namespace

Result<std::vector<ValueSpec>> Linear::Infer(
    std::span<const ValueSpec> inputs) const {
  TH_RETURN_IF_ERROR(CheckFloats(inputs, {"x", Weight("w")}));
  const ValueSpec& x = inputs[kX];
  const ValueSpec& w = inputs[kW];
  if (x.shape.rank() != 2 || w.shape.rank() != 2 || x.shape[1] != w.shape[1]) {
    return Status::Usage(fmt::format(
        "needs rows [N, I] and weights [O, I] of the same I, got {} and {}; "
        "flatten images first",
        x.shape.ToString(), w.shape.ToString()));
  }
  return std::vector<ValueSpec>{
      {{x.shape[0], w.shape[0]}, DType::kF32, x.axis}};
}

ForwardResult Linear::Forward(ForwardContext& context) const {
  if (!stays_f32_) return OpDef::Forward(context);
  return {context.emit.Emit(context.name, shared_from_this(),
                            {context.inputs.begin(), context.inputs.end()},
                            Role::kStatistic),
          {}};
}

void Linear::Gradient(GradientContext& context) const {
  const ValueId grad_y = context.grad_outputs[0];
  // dW first: x may then be dropped before dX is made.
  if (context.wanted[kW]) {
    context.grad_inputs[kW] = context.emit.Emit(
        context.name + ".grad_w",
        std::make_shared<LinearGradWeight>(
            context.emit.graph().value(context.inputs[kW]).spec.storage),
        {context.inputs[kX], grad_y}, Role::kGradient)[0];
  }
  if (context.wanted[kX]) {
    context.grad_inputs[kX] = context.emit.Emit(
        context.name + ".grad_x", std::make_shared<LinearGradInput>(),
        {grad_y, context.inputs[kW]}, Role::kActivationGradient)[0];
  }
}

int64_t Linear::Flops(std::span<const ValueSpec> inputs,
                      std::span<const ValueSpec>) const {
  return MatmulFlops(inputs[kX].shape[0], inputs[kW]);
}

Workspace Linear::Scratch(std::span<const ValueSpec> inputs,
                          std::span<const ValueSpec> outputs) const {
  return kernels::LinearForwardWorkspace(
      LinearShapeOf(inputs[kW]),
      LinearStorageOf(inputs[kX], inputs[kW], outputs[0]));
}

Result<std::vector<ValueSpec>> LinearGradInput::Infer(
    std::span<const ValueSpec> inputs) const {
  TH_RETURN_IF_ERROR(CheckFloats(inputs, {"grad_y", Weight("w"), "other"}));
  return std::vector<ValueSpec>{{{inputs[kGradY].shape[0], inputs[kW].shape[1]},
                                 DType::kF32,
                                 inputs[kGradY].axis}};
}

int64_t LinearGradInput::Flops(std::span<const ValueSpec> inputs,
                               std::span<const ValueSpec>) const {
  return MatmulFlops(inputs[kGradY].shape[0], inputs[kW]);
}

Workspace LinearGradInput::Scratch(std::span<const ValueSpec> inputs,
                                   std::span<const ValueSpec> outputs) const {
  return kernels::LinearGradInputWorkspace(
      LinearShapeOf(inputs[kW]),
      LinearStorageOf(inputs[kGradY], inputs[kW], outputs[0]));
}

Result<std::vector<ValueSpec>> LinearGradWeight::Infer(
    std::span<const ValueSpec> inputs) const {
  TH_RETURN_IF_ERROR(CheckFloats(inputs, {"x", "grad_y"}));
  ValueSpec w = {{inputs[kGradY].shape[1], inputs[kX].shape[1]}, DType::kF32};
  w.storage.sparsity = w_.sparsity;
  return std::vector<ValueSpec>{w};
}

int64_t LinearGradWeight::Flops(std::span<const ValueSpec> inputs,
                                std::span<const ValueSpec> outputs) const {
  return MatmulFlops(inputs[kX].shape[0], outputs[0]);
}

Workspace LinearGradWeight::Scratch(std::span<const ValueSpec> inputs,
                                    std::span<const ValueSpec> outputs) const {
  return GradWeightWorkspace(
      LinearShapeOf(outputs[0]),
      LinearStorageOf(inputs[kX], inputs[kGradY], outputs[0]), outputs[0]);
}

void Linear::Run(const BoundOp& c, const RunContext& run) const {
  kernels::LinearForward(LinearShapeOf(c.in_spec(kW)), run.Rows(c.in_spec(kX)),
                         c.In(kX), c.In(kW), {c.Out(0)}, c.kernel);
}

void LinearGradInput::Run(const BoundOp& c, const RunContext& run) const {
  kernels::LinearGradInput(
      LinearShapeOf(c.in_spec(kW)), run.Rows(c.in_spec(kGradY)), c.In(kGradY),
      c.In(kW), {.to = c.Out(0), .addend = c.InOrNone(kOther)}, c.kernel);
}

void LinearGradWeight::Run(const BoundOp& c, const RunContext& run) const {
  const GradientOut grad_w(c, 0, run);
  kernels::LinearGradWeight(LinearShapeOf(c.out_spec(0)),
                            run.Rows(c.in_spec(kX)), c.In(kX), c.In(kGradY),
                            grad_w.ForLinear(), c.kernel);
}

}  // namespace thimble::ops
