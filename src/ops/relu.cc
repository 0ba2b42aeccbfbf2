// SPDX-License-Identifier: Apache-2.0
#include "ops/relu.h"

#include "base/check.h"
#include "kernels/elementwise/elementwise.h"
#include "ops/bound_op.h"
#include "ops/storage.h"

namespace thimble::ops {

Result<std::vector<ValueSpec>> Relu::Infer(
    std::span<const ValueSpec> inputs) const {
  TH_RETURN_IF_ERROR(CheckFloats(inputs, {"x"}));
  return std::vector<ValueSpec>{inputs[0]};
}

ForwardResult Relu::Forward(ForwardContext& context) const {
  if (context.mode == Mode::kEvaluate || context.output_is_kept) {
    return OpDef::Forward(context);
  }
  const auto made =
      context.emit.Emit(context.name, std::make_shared<ReluWithMask>(),
                        {context.inputs[0]}, Role::kActivation);
  return {{made[0]}, {made[1]}};
}

void Relu::Gradient(GradientContext& context) const {
  if (!context.wanted[0]) return;
  const ValueId grad_y = context.grad_outputs[0];
  const std::string name = context.name + ".grad_x";
  if (context.saved.empty()) {
    context.grad_inputs[0] = context.emit.Emit(
        name, std::make_shared<ReluGradFromOutput>(),
        {context.outputs[0], grad_y}, Role::kActivationGradient)[0];
  } else {
    context.grad_inputs[0] = context.emit.Emit(
        name, std::make_shared<ReluGradFromMask>(), {context.saved[0], grad_y},
        Role::kActivationGradient)[0];
  }
}

Result<std::vector<ValueSpec>> ReluWithMask::Infer(
    std::span<const ValueSpec> inputs) const {
  TH_RETURN_IF_ERROR(CheckFloats(inputs, {"x"}));
  ValueSpec mask = inputs[0];
  mask.storage = DType::kBit;
  return std::vector<ValueSpec>{inputs[0], mask};
}

Result<std::vector<ValueSpec>> ReluGradFromOutput::Infer(
    std::span<const ValueSpec> inputs) const {
  TH_RETURN_IF_ERROR(CheckFloats(inputs, {"y", "grad_y"}));
  return std::vector<ValueSpec>{inputs[kGradY]};
}

Result<std::vector<ValueSpec>> ReluGradFromMask::Infer(
    std::span<const ValueSpec> inputs) const {
  TH_RETURN_IF_ERROR(CheckStored("mask", inputs[kMask], DType::kBit));
  TH_RETURN_IF_ERROR(CheckFloat("grad_y", inputs[kGradY]));
  return std::vector<ValueSpec>{inputs[kGradY]};
}

void Relu::Run(const BoundOp& c, const RunContext& run) const {
  kernels::Relu(run.Elements(c.in_spec(0)), c.In(0), c.Out(0), c.kernel);
}

void ReluWithMask::Run(const BoundOp& c, const RunContext& run) const {
  kernels::ReluWithMask(run.Elements(c.in_spec(0)), c.In(0), c.Out(0),
                        c.Out(1).bits(), c.kernel);
}

void ReluGradFromOutput::Run(const BoundOp& c, const RunContext& run) const {
  kernels::ReluGradFromOutput(run.Elements(c.in_spec(kY)), c.In(kY),
                              c.In(kGradY), c.Out(0), c.kernel);
}

void ReluGradFromMask::Run(const BoundOp& c, const RunContext& run) const {
  kernels::ReluGradFromMask(run.Elements(c.in_spec(kMask)), c.In(kMask).bits(),
                            c.In(kGradY), c.Out(0), c.kernel);
}

}  // namespace thimble::ops
