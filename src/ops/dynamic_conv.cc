// SPDX-License-Identifier: Apache-2.0
#include "ops/dynamic_conv.h"

#include <fmt/format.h>

#include "base/check.h"
#include "ops/bound_op.h"
#include "ops/sentences.h"
#include "ops/storage.h"

namespace thimble::ops {
namespace {

using kernels::DynamicConvShape;

// Of a softmax, per tap: the largest, the difference, exp, the sum, a product.
constexpr int64_t kTapFlops = 5;
// Of its gradient, per tap: the mean's product and sum, a difference and a
// product.
constexpr int64_t kTapGradFlops = 4;

DynamicConvShape ConvShapeOf(const DynamicConvSettings& settings,
                             int64_t features) {
  return {.features = features,
          .heads = settings.heads,
          .kernel = settings.kernel,
          .causal = settings.causal};
}

// Of u, or what has its shape, and the taps' logits.
Status CheckConvShapes(const DynamicConvSettings& settings,
                       std::string_view what, const ValueSpec& u,
                       const ValueSpec& logits) {
  TH_RETURN_IF_ERROR(CheckRate(settings.dropout));
  if (settings.kernel < 1 || (!settings.causal && settings.kernel % 2 == 0)) {
    return Status::Usage(
        fmt::format("the kernel must be at least 1, and odd unless it is "
                    "causal, got {}",
                    settings.kernel));
  }
  if (u.shape.rank() != 2 || settings.heads < 1 ||
      u.shape[1] % settings.heads != 0) {
    return Status::Usage(
        fmt::format("needs {} [T, C] with features C that {} heads divide, "
                    "got {}",
                    what, settings.heads, u.shape.ToString()));
  }
  // The product of heads and kernel may not overflow.
  if (logits.shape.rank() != 2 || logits.shape[0] != u.shape[0] ||
      logits.shape[1] % settings.heads != 0 ||
      logits.shape[1] / settings.heads != settings.kernel) {
    return Status::Usage(fmt::format(
        "{} {} with {} heads of {} taps needs logits [{}, {} x {}], got {}",
        what, u.shape.ToString(), settings.heads, settings.kernel, u.shape[0],
        settings.heads, settings.kernel, logits.shape.ToString()));
  }
  constexpr int64_t kMaxBlocks = int64_t{1} << 32;
  if (kernels::DropoutBlocks(logits.shape[0], logits.shape[1]) > kMaxBlocks) {
    return Status::Usage(
        fmt::format("{} has more values than random numbers can be told apart "
                    "for; use a smaller batch",
                    logits.shape.ToString()));
  }
  return Status::Ok();
}

int64_t TapProductFlops(const ValueSpec& u,
                        const DynamicConvSettings& settings) {
  return 2 * u.shape.elements() * settings.kernel;
}
int64_t TapSoftmaxFlops(const ValueSpec& logits) {
  return kTapFlops * logits.shape.elements();
}

}  // namespace

// ---- Forward

Result<std::vector<ValueSpec>> DynamicConv::Infer(
    std::span<const ValueSpec> inputs) const {
  TH_RETURN_IF_ERROR(CheckFloats(inputs.first(kEnds), {"u", "logits"}));
  TH_RETURN_IF_ERROR(CheckEnds("ends", inputs[kEnds]));
  const ValueSpec& u = inputs[kU];
  TH_RETURN_IF_ERROR(CheckConvShapes(settings_, "u", u, inputs[kLogits]));
  return std::vector<ValueSpec>{{u.shape, DType::kF32, u.axis}};
}

ForwardResult DynamicConv::Forward(ForwardContext& context) const {
  if (context.mode == Mode::kTrain || settings_.dropout == 0.0f) {
    return OpDef::Forward(context);
  }
  DynamicConvSettings kept = settings_;
  kept.dropout = 0.0f;
  return {context.emit.Emit(context.name, std::make_shared<DynamicConv>(kept),
                            {context.inputs.begin(), context.inputs.end()},
                            Role::kActivation),
          {}};
}

void DynamicConv::Gradient(GradientContext& context) const {
  const ValueId u = context.inputs[kU], logits = context.inputs[kLogits];
  const ValueId ends = context.inputs[kEnds];
  const ValueId grad_y = context.grad_outputs[0];
  if (context.wanted[kLogits]) {
    context.grad_inputs[kLogits] = context.emit.Emit(
        context.name + ".grad_logits",
        std::make_shared<DynamicConvGradLogits>(settings_),
        {u, logits, grad_y, ends}, Role::kActivationGradient)[0];
  }
  if (context.wanted[kU]) {
    context.grad_inputs[kU] =
        context.emit.Emit(context.name + ".grad_u",
                          std::make_shared<DynamicConvGradInput>(settings_),
                          {logits, grad_y, ends}, Role::kActivationGradient)[0];
  }
}

int64_t DynamicConv::Flops(std::span<const ValueSpec> inputs,
                           std::span<const ValueSpec>) const {
  return TapProductFlops(inputs[kU], settings_) +
         TapSoftmaxFlops(inputs[kLogits]);
}

Workspace DynamicConv::Scratch(std::span<const ValueSpec> inputs,
                               std::span<const ValueSpec>) const {
  return DynamicConvWorkspace(ConvShapeOf(settings_, inputs[kU].shape[1]));
}

void DynamicConv::Run(const BoundOp& c, const RunContext& run) const {
  const ValueSpec& u = c.in_spec(kU);
  kernels::DynamicConv(ConvShapeOf(settings_, u.shape[1]),
                       SentencesOf(c, kEnds, run),
                       MaskOf(settings_.dropout, settings_.stream, u, run),
                       c.In(kU), c.In(kLogits), c.Out(0), c.kernel);
}

// ---- The gradient of u

Result<std::vector<ValueSpec>> DynamicConvGradInput::Infer(
    std::span<const ValueSpec> inputs) const {
  TH_RETURN_IF_ERROR(CheckFloats(inputs.first(kEnds), {"logits", "grad_y"}));
  TH_RETURN_IF_ERROR(CheckEnds("ends", inputs[kEnds]));
  const ValueSpec& grad_y = inputs[kGradY];
  TH_RETURN_IF_ERROR(
      CheckConvShapes(settings_, "grad_y", grad_y, inputs[kLogits]));
  return std::vector<ValueSpec>{{grad_y.shape, DType::kF32, grad_y.axis}};
}

int64_t DynamicConvGradInput::Flops(std::span<const ValueSpec> inputs,
                                    std::span<const ValueSpec>) const {
  return TapProductFlops(inputs[kGradY], settings_) +
         TapSoftmaxFlops(inputs[kLogits]);
}

int64_t DynamicConvGradInput::RecomputeFlops(std::span<const ValueSpec> inputs,
                                             std::span<const ValueSpec>) const {
  return TapSoftmaxFlops(inputs[kLogits]);
}

Workspace DynamicConvGradInput::Scratch(std::span<const ValueSpec> inputs,
                                        std::span<const ValueSpec>) const {
  return DynamicConvWorkspace(ConvShapeOf(settings_, inputs[kGradY].shape[1]));
}

void DynamicConvGradInput::Run(const BoundOp& c, const RunContext& run) const {
  const ValueSpec& grad_y = c.in_spec(kGradY);
  kernels::DynamicConvGradInput(
      ConvShapeOf(settings_, grad_y.shape[1]), SentencesOf(c, kEnds, run),
      MaskOf(settings_.dropout, settings_.stream, grad_y, run), c.In(kLogits),
      c.In(kGradY), c.Out(0), c.kernel);
}

// ---- The gradient of the logits

Result<std::vector<ValueSpec>> DynamicConvGradLogits::Infer(
    std::span<const ValueSpec> inputs) const {
  TH_RETURN_IF_ERROR(
      CheckFloats(inputs.first(kEnds), {"u", "logits", "grad_y"}));
  TH_RETURN_IF_ERROR(CheckEnds("ends", inputs[kEnds]));
  const ValueSpec& logits = inputs[kLogits];
  TH_RETURN_IF_ERROR(CheckConvShapes(settings_, "u", inputs[kU], logits));
  if (inputs[kGradY].shape != inputs[kU].shape) {
    return Status::Usage(fmt::format("u {} needs a grad_y of its shape, got {}",
                                     inputs[kU].shape.ToString(),
                                     inputs[kGradY].shape.ToString()));
  }
  return std::vector<ValueSpec>{{logits.shape, DType::kF32, logits.axis}};
}

int64_t DynamicConvGradLogits::Flops(std::span<const ValueSpec> inputs,
                                     std::span<const ValueSpec>) const {
  return TapProductFlops(inputs[kU], settings_) +
         TapSoftmaxFlops(inputs[kLogits]) +
         kTapGradFlops * inputs[kLogits].shape.elements();
}

int64_t DynamicConvGradLogits::RecomputeFlops(
    std::span<const ValueSpec> inputs, std::span<const ValueSpec>) const {
  return TapSoftmaxFlops(inputs[kLogits]);
}

Workspace DynamicConvGradLogits::Scratch(std::span<const ValueSpec> inputs,
                                         std::span<const ValueSpec>) const {
  return DynamicConvWorkspace(ConvShapeOf(settings_, inputs[kU].shape[1]));
}

void DynamicConvGradLogits::Run(const BoundOp& c, const RunContext& run) const {
  const ValueSpec& u = c.in_spec(kU);
  kernels::DynamicConvGradLogits(
      ConvShapeOf(settings_, u.shape[1]), SentencesOf(c, kEnds, run),
      MaskOf(settings_.dropout, settings_.stream, u, run), c.In(kU),
      c.In(kLogits), c.In(kGradY), c.Out(0), c.kernel);
}

}  // namespace thimble::ops
