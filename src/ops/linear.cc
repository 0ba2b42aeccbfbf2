// SPDX-License-Identifier: Apache-2.0
#include "ops/linear.h"

#include <fmt/format.h>

namespace thimble::ops {
namespace {

// rows × in × out, whichever two of the three matrices are at hand.
int64_t MatmulFlops(int64_t rows, const ValueSpec& w) {
  return 2 * rows * w.shape.elements();
}

}  // namespace

Result<std::vector<ValueSpec>> Linear::Infer(
    std::span<const ValueSpec> inputs) const {
  const ValueSpec& x = inputs[0];
  const ValueSpec& w = inputs[1];
  if (!IsF32(x, 2) || !IsF32(w, 2) || x.shape[1] != w.shape[1]) {
    return Status::Usage(fmt::format(
        "needs f32 rows [N, I] and weights [O, I] of the same I, got {} {} and "
        "{} {}; flatten images first",
        x.shape.ToString(), DTypeName(x.dtype), w.shape.ToString(),
        DTypeName(w.dtype)));
  }
  return std::vector<ValueSpec>{
      {{x.shape[0], w.shape[0]}, DType::kF32, x.batched}};
}

void Linear::Gradient(GradientContext& context) const {
  const ValueId grad_y = context.grad_outputs[0];
  // dW first: x may then be dropped before dX is made.
  if (context.wanted[1]) {
    context.grad_inputs[1] = context.emit.Emit(
        context.name + ".grad_w", std::make_shared<LinearGradWeight>(),
        {context.inputs[0], grad_y}, Role::kGradient)[0];
  }
  if (context.wanted[0]) {
    context.grad_inputs[0] = context.emit.Emit(
        context.name + ".grad_x", std::make_shared<LinearGradInput>(),
        {grad_y, context.inputs[1]}, Role::kActivationGradient)[0];
  }
}

int64_t Linear::Flops(std::span<const ValueSpec> inputs,
                      std::span<const ValueSpec>) const {
  return MatmulFlops(inputs[0].shape[0], inputs[1]);
}

Workspace Linear::Scratch(std::span<const ValueSpec> inputs,
                          std::span<const ValueSpec>) const {
  return kernels::LinearForwardWorkspace(LinearShapeOf(inputs[1]));
}

Result<std::vector<ValueSpec>> LinearGradInput::Infer(
    std::span<const ValueSpec> inputs) const {
  return std::vector<ValueSpec>{{{inputs[0].shape[0], inputs[1].shape[1]},
                                 DType::kF32,
                                 inputs[0].batched}};
}

int64_t LinearGradInput::Flops(std::span<const ValueSpec> inputs,
                               std::span<const ValueSpec>) const {
  return MatmulFlops(inputs[0].shape[0], inputs[1]);
}

Workspace LinearGradInput::Scratch(std::span<const ValueSpec> inputs,
                                   std::span<const ValueSpec>) const {
  return kernels::LinearGradInputWorkspace(LinearShapeOf(inputs[1]));
}

Result<std::vector<ValueSpec>> LinearGradWeight::Infer(
    std::span<const ValueSpec> inputs) const {
  return std::vector<ValueSpec>{
      {{inputs[1].shape[1], inputs[0].shape[1]}, DType::kF32, false}};
}

int64_t LinearGradWeight::Flops(std::span<const ValueSpec> inputs,
                                std::span<const ValueSpec> outputs) const {
  return MatmulFlops(inputs[0].shape[0], outputs[0]);
}

Workspace LinearGradWeight::Scratch(std::span<const ValueSpec>,
                                    std::span<const ValueSpec> outputs) const {
  return kernels::LinearGradWeightWorkspace(LinearShapeOf(outputs[0]));
}

}  // namespace thimble::ops
