// SPDX-License-Identifier: Apache-2.0
#include "ops/projected_loss.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/matmul/matmul.h"
#include "kernels/softmax/token_loss.h"
#include "ops/bound_op.h"
#include "ops/gradient_out.h"
#include "ops/linear.h"
#include "ops/storage.h"

namespace thimble::ops {
namespace {

using kernels::LinearShape;
using kernels::LinearStorage;

// x [T, C], w [V, C], labels [T]: what the loss and its gradient read.
Status CheckTokens(std::span<const ValueSpec> inputs) {
  const ValueSpec& x = inputs[ProjectedCrossEntropy::kX];
  const ValueSpec& w = inputs[ProjectedCrossEntropy::kW];
  const ValueSpec& labels = inputs[ProjectedCrossEntropy::kLabels];
  TH_RETURN_IF_ERROR(CheckFloats(inputs.first(2), {"x", Weight("w")}));
  TH_RETURN_IF_ERROR(CheckStored("labels", labels, DType::kI32));
  if (x.shape.rank() == 2 && w.shape.rank() == 2 && labels.shape.rank() == 1 &&
      x.shape[1] == w.shape[1] && x.shape[0] == labels.shape[0]) {
    return Status::Ok();
  }
  return Status::Usage(fmt::format(
      "needs rows [T, C], weights [V, C] and labels [T], got {}, {} and {}",
      x.shape.ToString(), w.shape.ToString(), labels.shape.ToString()));
}

int64_t ProductFlops(std::span<const ValueSpec> inputs) {
  return 2 * inputs[ProjectedCrossEntropy::kX].shape[0] *
         inputs[ProjectedCrossEntropy::kW].kept();
}
// Of what is made of each logit.
int64_t LogitFlops(std::span<const ValueSpec> inputs) {
  return 4 * inputs[ProjectedCrossEntropy::kX].shape[0] *
         inputs[ProjectedCrossEntropy::kW].shape[0];
}

// The shared part of the scratch: logits of a block, their gradient, and of
// each row what is told of it. What the products share comes behind.
struct Layout {
  Layout(const ValueSpec& x, const ValueSpec& w)
      : block(std::min(x.shape[0], kRowsAtOnce)) {
    const int64_t logits = block * w.shape[0];
    grad = RoundUpToAlignment(static_cast<size_t>(logits) * sizeof(float));
    rows = grad + RoundUpToAlignment(BytesFor(x.storage.dtype, logits));
    bytes = rows + 3 * RoundUpToAlignment(static_cast<size_t>(x.shape[0]) *
                                          sizeof(float));
  }
  // The same without a gradient.
  static size_t OfLoss(const ValueSpec& x, const ValueSpec& w) {
    const Layout all(x, w);
    return all.bytes - (all.rows - all.grad);
  }
  int64_t block;
  size_t grad, rows, bytes;
};

// The context of a product whose scratch begins behind `own` bytes.
kernels::KernelContext Behind(const kernels::KernelContext& context,
                              size_t own) {
  kernels::KernelContext behind = context;
  behind.scratch += own;
  behind.workspace.shared -= own;
  return behind;
}

Workspace WithShared(size_t own, const Workspace& product) {
  return {.per_thread = product.per_thread, .shared = own + product.shared};
}

Workspace LargerOf(const Workspace& a, const Workspace& b) {
  return {.per_thread = std::max(a.per_thread, b.per_thread),
          .shared = std::max(a.shared, b.shared)};
}

Workspace LogitsWorkspace(const ValueSpec& x, const ValueSpec& w) {
  return kernels::LinearForwardWorkspace(
      LinearShapeOf(w),
      LinearStorage{x.storage.dtype, w.storage.dtype, DType::kF32});
}

}  // namespace

Result<std::vector<ValueSpec>> ProjectedCrossEntropy::Infer(
    std::span<const ValueSpec> inputs) const {
  if (!(smoothing_ >= 0.0f && smoothing_ < 1.0f)) {
    return Status::Usage(
        fmt::format("the smoothing must be in [0, 1), got {}", smoothing_));
  }
  TH_RETURN_IF_ERROR(CheckTokens(inputs));
  return std::vector<ValueSpec>{
      {{1}, DType::kF32}, {{1}, DType::kF32}, {{1}, DType::kI32}};
}

ForwardResult ProjectedCrossEntropy::Forward(ForwardContext& context) const {
  return {context.emit.Emit(context.name, shared_from_this(),
                            {context.inputs.begin(), context.inputs.end()},
                            Role::kStatistic),
          {}};
}

void ProjectedCrossEntropy::Gradient(GradientContext& context) const {
  const auto made = context.emit.Emit(
      context.name + ".grad",
      std::make_shared<ProjectedCrossEntropyGrad>(smoothing_),
      {context.inputs[kX], context.inputs[kW], context.inputs[kLabels]},
      Role::kActivationGradient);
  context.emit.SetRole(made[ProjectedCrossEntropyGrad::kGradW],
                       Role::kGradient);
  context.grad_inputs[kW] = made[ProjectedCrossEntropyGrad::kGradW];
  context.grad_inputs[kX] = made[ProjectedCrossEntropyGrad::kGradX];
}

int64_t ProjectedCrossEntropy::Flops(std::span<const ValueSpec> inputs,
                                     std::span<const ValueSpec>) const {
  return ProductFlops(inputs) + LogitFlops(inputs);
}

Workspace ProjectedCrossEntropy::Scratch(std::span<const ValueSpec> inputs,
                                         std::span<const ValueSpec>) const {
  return WithShared(Layout::OfLoss(inputs[kX], inputs[kW]),
                    LogitsWorkspace(inputs[kX], inputs[kW]));
}

void ProjectedCrossEntropy::Run(const BoundOp& c, const RunContext& run) const {
  const ValueSpec& x = c.in_spec(kX);
  const int64_t rows = run.Rows(x), classes = c.in_spec(kW).shape[0];
  const Layout layout(x, c.in_spec(kW));
  const auto context = Behind(c.kernel, Layout::OfLoss(x, c.in_spec(kW)));
  auto* logits = c.kernel.Shared<float>();
  // Where the gradient would be.
  float* losses = logits + layout.grad / sizeof(float);
  const size_t each =
      RoundUpToAlignment(static_cast<size_t>(x.shape[0]) * sizeof(float)) /
      sizeof(float);
  float* nll = losses + each;
  auto* hits = reinterpret_cast<int32_t*>(nll + each);
  for (int64_t r = 0; r < rows; r += layout.block) {
    const int64_t count = std::min(layout.block, rows - r);
    kernels::LinearForward(LinearShapeOf(c.in_spec(kW)), count,
                           c.In(kX).From(r * x.shape[1]), c.In(kW),
                           {kernels::F32(logits)}, context);
    kernels::TokenLoss({classes, smoothing_}, count, logits,
                       c.In(kLabels).i32() + r, {losses + r, nll + r, hits + r},
                       context);
  }
  double loss = 0.0, all_nll = 0.0;
  int32_t right = 0;
  for (int64_t r = 0; r < rows; ++r) {
    loss += static_cast<double>(losses[r]);
    all_nll += static_cast<double>(nll[r]);
    right += hits[r];
  }
  *c.Out(kLoss).f32() = static_cast<float>(loss / static_cast<double>(rows));
  *c.Out(kNll).f32() = static_cast<float>(all_nll);
  *c.Out(kHits).i32() = right;
}

Result<std::vector<ValueSpec>> ProjectedCrossEntropyGrad::Infer(
    std::span<const ValueSpec> inputs) const {
  TH_RETURN_IF_ERROR(CheckTokens(inputs));
  ValueSpec grad_w = {inputs[kW].shape, DType::kF32};
  grad_w.storage.sparsity = inputs[kW].storage.sparsity;
  return std::vector<ValueSpec>{
      grad_w, {inputs[kX].shape, DType::kF32, inputs[kX].axis}};
}

int64_t ProjectedCrossEntropyGrad::Flops(std::span<const ValueSpec> inputs,
                                         std::span<const ValueSpec>) const {
  return 3 * ProductFlops(inputs) + LogitFlops(inputs);
}

int64_t ProjectedCrossEntropyGrad::RecomputeFlops(
    std::span<const ValueSpec> inputs, std::span<const ValueSpec>) const {
  return ProductFlops(inputs);
}

Workspace ProjectedCrossEntropyGrad::Scratch(
    std::span<const ValueSpec> inputs,
    std::span<const ValueSpec> outputs) const {
  const ValueSpec& x = inputs[kX];
  const ValueSpec& w = inputs[kW];
  const DType grad = x.storage.dtype;
  const Workspace to_x = kernels::LinearGradInputWorkspace(
      LinearShapeOf(w), {grad, w.storage.dtype, outputs[kGradX].storage.dtype});
  const Workspace to_w = GradWeightWorkspace(
      LinearShapeOf(outputs[kGradW]),
      {grad, grad, outputs[kGradW].storage.dtype}, outputs[kGradW]);
  return WithShared(Layout(x, w).bytes,
                    LargerOf(LogitsWorkspace(x, w), LargerOf(to_x, to_w)));
}

void ProjectedCrossEntropyGrad::Run(const BoundOp& c,
                                    const RunContext& run) const {
  const ValueSpec& x = c.in_spec(kX);
  const LinearShape shape = LinearShapeOf(c.in_spec(kW));
  const LinearShape grad_shape = LinearShapeOf(c.out_spec(kGradW));
  const int64_t rows = run.Rows(x);
  const Layout layout(x, c.in_spec(kW));
  const auto context = Behind(c.kernel, layout.bytes);
  auto* logits = c.kernel.Shared<float>();
  const kernels::Tensor grad(c.kernel.scratch + layout.grad, x.storage.dtype);
  // The step's loss is the mean over all of its microbatches.
  const float scale = 1.0f / static_cast<float>(run.PartOf(x.axis).total);
  for (int64_t r = 0; r < rows; r += layout.block) {
    const int64_t count = std::min(layout.block, rows - r);
    const kernels::ConstTensor x_rows = c.In(kX).From(r * shape.in);
    kernels::LinearForward(shape, count, x_rows, c.In(kW),
                           {kernels::F32(logits)}, context);
    kernels::TokenLossGrad({shape.out, smoothing_}, count, logits,
                           c.In(kLabels).i32() + r, scale, run.loss_scale, grad,
                           context);
    const GradientOut grad_w(c, kGradW, run, kernels::ConstTensor::None(),
                             {.index = r / layout.block, .first = r});
    kernels::LinearGradWeight(grad_shape, count, x_rows, grad,
                              grad_w.ForLinear(), context);
    kernels::LinearGradInput(shape, count, grad, c.In(kW),
                             {c.Out(kGradX).From(r * shape.in)}, context);
  }
}

}  // namespace thimble::ops
