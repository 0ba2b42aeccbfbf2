// SPDX-License-Identifier: Apache-2.0
#include "ops/shortcut.h"

#include <fmt/format.h>

#include "base/check.h"
#include "ops/bound_op.h"
#include "ops/storage.h"

namespace thimble::ops {

kernels::ShortcutShape Shortcut::ShapeOf(const ValueSpec& x) const {
  return {.in_channels = x.shape[1],
          .height = x.shape[2],
          .width = x.shape[3],
          .out_channels = out_channels_,
          .stride = stride_};
}

Result<std::vector<ValueSpec>> Shortcut::Infer(
    std::span<const ValueSpec> inputs) const {
  const ValueSpec& x = inputs[0];
  TH_RETURN_IF_ERROR(CheckFloats(inputs, {"x"}));
  if (x.shape.rank() != 4 || stride_ < 1 || out_channels_ < 1) {
    return Status::Usage(fmt::format(
        "needs images [N, C, H, W], stride >= 1 and a channel out, got "
        "{}, stride {} and {} channels",
        x.shape.ToString(), stride_, out_channels_));
  }
  const kernels::ShortcutShape s = ShapeOf(x);
  return std::vector<ValueSpec>{
      {{x.shape[0], out_channels_, s.out_height(), s.out_width()},
       DType::kF32,
       x.axis}};
}

void Shortcut::Gradient(GradientContext& context) const {
  if (!context.wanted[0]) return;
  const ValueSpec x = context.emit.graph().value(context.inputs[0]).spec;
  context.grad_inputs[0] = context.emit.Emit(
      context.name + ".grad_x", std::make_shared<ShortcutGrad>(ShapeOf(x), x),
      {context.grad_outputs[0]}, Role::kActivationGradient)[0];
}

Result<std::vector<ValueSpec>> ShortcutGrad::Infer(
    std::span<const ValueSpec> inputs) const {
  TH_RETURN_IF_ERROR(CheckFloats(inputs, {"grad_y"}));
  return std::vector<ValueSpec>{x_};
}

void Shortcut::Run(const BoundOp& c, const RunContext& run) const {
  const auto shape = ShapeOf(c.in_spec(0));
  kernels::Shortcut(shape, run.Rows(c.in_spec(0)), c.In(0), c.Out(0), c.kernel);
}

void ShortcutGrad::Run(const BoundOp& c, const RunContext& run) const {
  kernels::ShortcutGrad(shape_, run.Rows(c.in_spec(0)), c.In(0), c.Out(0),
                        c.kernel);
}

}  // namespace thimble::ops
