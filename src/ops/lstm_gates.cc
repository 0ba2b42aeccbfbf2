// SPDX-License-Identifier: Apache-2.0
#include "ops/lstm_gates.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/matmul/matmul.h"
#include "ops/bound_op.h"
#include "ops/gradient_out.h"
#include "ops/linear.h"
#include "ops/storage.h"

namespace thimble::ops {
namespace {

// Positions among the inputs of lstm-gates.
constexpr size_t kX = 0, kWeightX = 1, kBias = 2, kH = 3, kWeightH = 4;

// Of products that run one after the other.
Workspace Larger(const Workspace& a, const Workspace& b) {
  return {.per_thread = std::max(a.per_thread, b.per_thread),
          .shared = std::max(a.shared, b.shared)};
}

// One product with w, whichever way round.
int64_t ProductFlops(int64_t rows, const ValueSpec& w) {
  return 2 * rows * w.kept();
}

// The gradient of input `k` by its weight, with what it already has added. A
// value that is both x and h gets two, which must not both hold the sum.
void EmitGradInput(GradientContext& context, const char* suffix, size_t k,
                   size_t weight) {
  const bool twice =
      context.inputs.size() > kH && context.inputs[kX] == context.inputs[kH];
  const bool fold = context.pending[k].valid() && !twice;
  std::vector<ValueId> inputs = {context.grad_outputs[0],
                                 context.inputs[weight]};
  if (fold) inputs.push_back(context.pending[k]);
  context.folded[k] = fold;
  context.grad_inputs[k] = context.emit.Emit(
      context.name + suffix, std::make_shared<LinearGradInput>(fold),
      std::move(inputs), Role::kActivationGradient)[0];
}

}  // namespace

Result<std::vector<ValueSpec>> LstmGates::Infer(
    std::span<const ValueSpec> inputs) const {
  TH_RETURN_IF_ERROR(
      CheckFloats(inputs, {"x", "w_x", Vector("bias"), "h", "w_h"}));
  const ValueSpec& x = inputs[kX];
  const ValueSpec& w_x = inputs[kWeightX];
  const ValueSpec& bias = inputs[kBias];
  if (x.shape.rank() != 2 || w_x.shape.rank() != 2 || bias.shape.rank() != 1 ||
      x.shape[1] != w_x.shape[1] || w_x.shape[0] % 4 != 0 ||
      bias.shape[0] != w_x.shape[0]) {
    return Status::Usage(fmt::format(
        "needs rows [N, I], weights [4H, I] and a bias [4H], got {}, {} "
        "and {}",
        x.shape.ToString(), w_x.shape.ToString(), bias.shape.ToString()));
  }
  const int64_t hidden = w_x.shape[0] / 4;
  if (recurrent_) {
    const ValueSpec& h = inputs[kH];
    const ValueSpec& w_h = inputs[kWeightH];
    if (h.shape.rank() != 2 || w_h.shape.rank() != 2 ||
        h.shape[0] != x.shape[0] || h.shape[1] != hidden ||
        w_h.shape[0] != 4 * hidden || w_h.shape[1] != hidden) {
      return Status::Usage(fmt::format(
          "needs a state [{}, {}] and weights [{}, {}] for it, got {} and {}",
          x.shape[0], hidden, 4 * hidden, hidden, h.shape.ToString(),
          w_h.shape.ToString()));
    }
  }
  return std::vector<ValueSpec>{
      {{x.shape[0], 4 * hidden}, DType::kF32, x.axis}};
}

void LstmGates::Gradient(GradientContext& context) const {
  const ValueId grad_z = context.grad_outputs[0];
  std::vector<size_t> learned = {kWeightX, kBias};
  if (recurrent_) learned.push_back(kWeightH);
  // The sums so far come from later steps: of all weights, or of none.
  const bool accumulate = std::ranges::all_of(
      learned, [&](size_t k) { return context.pending[k].valid(); });
  std::vector<ValueId> inputs = {context.inputs[kX], grad_z};
  if (recurrent_) inputs.push_back(context.inputs[kH]);
  for (size_t k : learned) {
    if (accumulate) inputs.push_back(context.pending[k]);
  }
  // dW first: x and h may then be dropped before their gradients are made.
  const auto made = context.emit.Emit(
      context.name + ".grad_w",
      std::make_shared<LstmGatesGradWeight>(recurrent_, accumulate),
      std::move(inputs), Role::kGradient);
  for (size_t at = 0; at < learned.size(); ++at) {
    context.grad_inputs[learned[at]] = made[at];
    context.folded[learned[at]] = accumulate;
  }
  if (recurrent_ && context.wanted[kH]) {
    EmitGradInput(context, ".grad_h", kH, kWeightH);
  }
  if (context.wanted[kX]) EmitGradInput(context, ".grad_x", kX, kWeightX);
}

int64_t LstmGates::Flops(std::span<const ValueSpec> inputs,
                         std::span<const ValueSpec> outputs) const {
  const int64_t rows = inputs[kX].shape[0];
  int64_t flops =
      ProductFlops(rows, inputs[kWeightX]) + outputs[0].shape.elements();
  if (recurrent_) flops += ProductFlops(rows, inputs[kWeightH]);
  return flops;
}

Workspace LstmGates::Scratch(std::span<const ValueSpec> inputs,
                             std::span<const ValueSpec> outputs) const {
  const auto product = [&](uint32_t in, uint32_t weight) {
    return kernels::LinearForwardWorkspace(
        LinearShapeOf(inputs[weight]),
        LinearStorageOf(inputs[in], inputs[weight], outputs[0]));
  };
  const Workspace x = product(kX, kWX);
  return recurrent_ ? Larger(x, product(kH, kWH)) : x;
}

Result<std::vector<ValueSpec>> LstmGatesGradWeight::Infer(
    std::span<const ValueSpec> inputs) const {
  const std::span<const ValueSpec> sums = inputs.subspan(first_sum());
  TH_RETURN_IF_ERROR(
      CheckFloats(inputs.first(first_sum()), {"x", "grad_z", "h"}));
  static constexpr std::string_view kSums[] = {
      "sum of grad_w_x", "sum of grad_bias", "sum of grad_w_h"};
  for (size_t i = 0; i < sums.size(); ++i) {
    TH_RETURN_IF_ERROR(i == 1 ? CheckStored(kSums[i], sums[i], DType::kF32)
                              : CheckGradient(kSums[i], sums[i]));
  }
  const int64_t gates = inputs[kGradZ].shape[1];
  std::vector<ValueSpec> outputs = {{{gates, inputs[kX].shape[1]}, DType::kF32},
                                    {{gates}, DType::kF32}};
  if (recurrent_) {
    outputs.push_back({{gates, inputs[kH].shape[1]}, DType::kF32});
  }
  return outputs;
}

std::vector<InPlacePair> LstmGatesGradWeight::InPlace() const {
  if (!accumulate_) return {};
  std::vector<InPlacePair> pairs = {{first_sum(), 0}, {first_sum() + 1, 1}};
  if (recurrent_) pairs.push_back({first_sum() + 2, 2});
  return pairs;
}

int64_t LstmGatesGradWeight::Flops(std::span<const ValueSpec> inputs,
                                   std::span<const ValueSpec> outputs) const {
  const int64_t rows = inputs[kX].shape[0];
  int64_t flops =
      ProductFlops(rows, outputs[0]) + inputs[kGradZ].shape.elements();
  if (recurrent_) flops += ProductFlops(rows, outputs[2]);
  return flops;
}

Workspace LstmGatesGradWeight::Scratch(
    std::span<const ValueSpec> inputs,
    std::span<const ValueSpec> outputs) const {
  const auto product = [&](uint32_t in, size_t of) {
    return GradWeightWorkspace(
        LinearShapeOf(outputs[of]),
        LinearStorageOf(inputs[in], inputs[kGradZ], outputs[of]), outputs[of]);
  };
  const Workspace x = product(kX, 0);
  return recurrent_ ? Larger(x, product(kH, 2)) : x;
}

void LstmGates::Run(const BoundOp& c, const RunContext& run) const {
  const int64_t rows = run.Rows(c.in_spec(kX));
  const kernels::LinearShape x = LinearShapeOf(c.in_spec(kWX));
  const kernels::Tensor z = c.Out(0);
  kernels::LinearForward(x, rows, c.In(kX), c.In(kWX), {z}, c.kernel);
  if (recurrent()) {
    kernels::LinearForward(LinearShapeOf(c.in_spec(kWH)), rows, c.In(kH),
                           c.In(kWH), {.to = z, .addend = z}, c.kernel);
  }
  kernels::BiasAdd(rows, x.out, 1, z, c.In(kBias), z, c.kernel);
}

void LstmGatesGradWeight::Run(const BoundOp& c, const RunContext& run) const {
  const auto target = [&](size_t output) {
    return GradientOut(c, output, run, c.InOrNone(first_sum() + output), {});
  };
  const int64_t rows = run.Rows(c.in_spec(kX));
  const kernels::LinearShape x = LinearShapeOf(c.out_spec(0));
  const kernels::ConstTensor grad_z = c.In(kGradZ);
  const GradientOut of_x = target(0);
  kernels::LinearGradWeight(x, rows, c.In(kX), grad_z, of_x.ForLinear(),
                            c.kernel);
  kernels::BiasGrad(rows, x.out, 1, grad_z, c.InOrNone(first_sum() + 1),
                    c.Out(1), c.kernel);
  if (!recurrent()) return;
  const GradientOut of_h = target(2);
  kernels::LinearGradWeight(LinearShapeOf(c.out_spec(2)), rows, c.In(kH),
                            grad_z, of_h.ForLinear(), c.kernel);
}

}  // namespace thimble::ops
