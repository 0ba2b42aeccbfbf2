// SPDX-License-Identifier: Apache-2.0
#include "ops/conv2d.h"

#include "base/check.h"
#include "ops/bound_op.h"
#include "ops/conv_geometry.h"
#include "ops/gradient_out.h"
#include "ops/storage.h"

namespace thimble::ops {
namespace {

// Nominal count: taps that fall on padding are counted like the others.
// Two for each weight that is kept, at each place where it is applied.
int64_t ConvFlops(const kernels::Conv2dShape& s, int64_t images,
                  const ValueSpec& w) {
  return 2 * images * s.out_height() * s.out_width() * w.kept();
}

}  // namespace

kernels::Conv2dShape Conv2d::ShapeOf(const ValueSpec& x,
                                     const ValueSpec& w) const {
  return {.in_channels = x.shape[1],
          .in_height = x.shape[2],
          .in_width = x.shape[3],
          .out_channels = w.shape[0],
          .kernel_h = w.shape[2],
          .kernel_w = w.shape[3],
          .stride = stride_,
          .padding = padding_,
          .blocks = BlocksOf(w.storage)};
}

Result<std::vector<ValueSpec>> Conv2d::Infer(
    std::span<const ValueSpec> inputs) const {
  TH_RETURN_IF_ERROR(CheckFloats(inputs, {"x", Weight("w")}));
  return ConvGeometry{stride_, padding_}.Infer(inputs[kX], inputs[kW]);
}

void Conv2d::Gradient(GradientContext& context) const {
  const ValueSpec x = context.emit.graph().value(context.inputs[kX]).spec;
  const ValueSpec w = context.emit.graph().value(context.inputs[kW]).spec;
  const kernels::Conv2dShape shape = ShapeOf(x, w);
  const ValueId grad_y = context.grad_outputs[0];
  // dW first: x may then be dropped before dX is made.
  if (context.wanted[kW]) {
    context.grad_inputs[kW] = context.emit.Emit(
        context.name + ".grad_w", std::make_shared<Conv2dGradWeight>(shape, w),
        {context.inputs[kX], grad_y}, Role::kGradient)[0];
  }
  if (context.wanted[kX]) {
    context.grad_inputs[kX] = context.emit.Emit(
        context.name + ".grad_x", std::make_shared<Conv2dGradInput>(shape, x),
        {grad_y, context.inputs[kW]}, Role::kActivationGradient)[0];
  }
}

int64_t Conv2d::Flops(std::span<const ValueSpec> inputs,
                      std::span<const ValueSpec>) const {
  return ConvFlops(ShapeOf(inputs[kX], inputs[kW]), inputs[kX].shape[0],
                   inputs[kW]);
}

Workspace Conv2d::Scratch(std::span<const ValueSpec> inputs,
                          std::span<const ValueSpec>) const {
  return kernels::Conv2dForwardWorkspace(ShapeOf(inputs[kX], inputs[kW]));
}

Result<std::vector<ValueSpec>> Conv2dGradInput::Infer(
    std::span<const ValueSpec> inputs) const {
  TH_RETURN_IF_ERROR(CheckFloats(inputs, {"grad_y", Weight("w")}));
  return std::vector<ValueSpec>{x_};
}

int64_t Conv2dGradInput::Flops(std::span<const ValueSpec> inputs,
                               std::span<const ValueSpec>) const {
  return ConvFlops(shape_, inputs[kGradY].shape[0], inputs[kW]);
}

Workspace Conv2dGradInput::Scratch(std::span<const ValueSpec>,
                                   std::span<const ValueSpec>) const {
  return kernels::Conv2dGradInputWorkspace(shape_);
}

Result<std::vector<ValueSpec>> Conv2dGradWeight::Infer(
    std::span<const ValueSpec> inputs) const {
  TH_RETURN_IF_ERROR(CheckFloats(inputs, {"x", "grad_y"}));
  return std::vector<ValueSpec>{w_};
}

int64_t Conv2dGradWeight::Flops(std::span<const ValueSpec> inputs,
                                std::span<const ValueSpec>) const {
  return ConvFlops(shape_, inputs[kX].shape[0], w_);
}

Workspace Conv2dGradWeight::Scratch(std::span<const ValueSpec>,
                                    std::span<const ValueSpec> outputs) const {
  return GradWeightWorkspace(shape_, outputs[0]);
}

void Conv2d::Run(const BoundOp& c, const RunContext& run) const {
  const auto shape = ShapeOf(c.in_spec(kX), c.in_spec(kW));
  kernels::Conv2dForward(shape, run.Rows(c.in_spec(kX)), {.x = c.In(kX)},
                         c.In(kW), {.to = c.Out(0)}, c.kernel);
}

void Conv2dGradInput::Run(const BoundOp& c, const RunContext& run) const {
  kernels::Conv2dGradInput(shape_, run.Rows(c.in_spec(kGradY)), c.In(kGradY),
                           c.In(kW), {.to = c.Out(0)}, c.kernel);
}

void Conv2dGradWeight::Run(const BoundOp& c, const RunContext& run) const {
  const GradientOut grad_w(c, 0, run);
  kernels::Conv2dGradWeight(shape_, run.Rows(c.in_spec(kX)), {.x = c.In(kX)},
                            c.In(kGradY), grad_w.ForConv(), c.kernel);
}

}  // namespace thimble::ops
