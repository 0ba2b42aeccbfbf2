// SPDX-License-Identifier: Apache-2.0
#include "ops/dropout.h"

#include <fmt/format.h>

#include "base/check.h"
#include "kernels/elementwise/elementwise.h"
#include "ops/bound_op.h"
#include "ops/storage.h"

namespace thimble::ops {

Result<std::vector<ValueSpec>> Dropout::Infer(
    std::span<const ValueSpec> inputs) const {
  // Not only NaN is refused by the form of the comparison: 1 would divide by 0.
  if (!(rate_ >= 0.0f && rate_ < 1.0f)) {
    return Status::Usage(
        fmt::format("the rate must be in [0, 1), got {}", rate_));
  }
  const ValueSpec& x = inputs[0];
  TH_RETURN_IF_ERROR(CheckFloats(inputs, {"x"}));
  if (!x.axis.valid()) {
    return Status::Usage(
        fmt::format("needs values of a batch, got {}", x.shape.ToString()));
  }
  constexpr int64_t kMaxBlocks = int64_t{1} << 32;
  if (kernels::DropoutBlocks(x.shape[0], x.shape.elements_from(1)) >
      kMaxBlocks) {
    return Status::Usage(
        fmt::format("{} has more values than random numbers "
                    "can be told apart for; use a smaller "
                    "batch",
                    x.shape.ToString()));
  }
  return std::vector<ValueSpec>{x};
}

ForwardResult Dropout::Forward(ForwardContext& context) const {
  if (context.mode == Mode::kTrain) return OpDef::Forward(context);
  return {{context.inputs[0]}, {}};
}

void Dropout::Gradient(GradientContext& context) const {
  if (!context.wanted[0]) return;
  context.grad_inputs[0] = context.emit.Emit(
      context.name + ".grad_x", shared_from_this(), {context.grad_outputs[0]},
      Role::kActivationGradient)[0];
}

void Dropout::Run(const BoundOp& c, const RunContext& run) const {
  const int64_t elements = c.in_spec(0).shape.elements_from(1);
  kernels::Dropout(run.Rows(c.in_spec(0)), elements,
                   {.seed = run.seed,
                    .step = run.step,
                    .stream = stream(),
                    .first = run.PartOf(c.in_spec(0).axis).first,
                    .rate = rate()},
                   c.In(0), c.Out(0), c.kernel);
}

}  // namespace thimble::ops
