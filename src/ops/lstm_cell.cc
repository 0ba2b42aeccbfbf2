// SPDX-License-Identifier: Apache-2.0
#include "ops/lstm_cell.h"

#include <fmt/format.h>

#include "base/check.h"
#include "kernels/lstm/lstm.h"
#include "ops/bound_op.h"
#include "ops/storage.h"

namespace thimble::ops {
namespace {

// For each element of the state; a nonlinearity counts as one.
constexpr int64_t kForwardFlops = 10;
constexpr int64_t kStateFlops = 4;  // c and tanh(c)
constexpr int64_t kBackwardFlops = 28;

void RunCell(const BoundOp& c, const RunContext& run, const LstmCell& cell) {
  kernels::LstmCell(
      {run.Rows(c.in_spec(LstmCell::kZ)), c.out_spec(0).shape[1]},
      {.z = c.In(LstmCell::kZ),
       .c_before = cell.recurrent() ? c.In(LstmCell::kCBefore)
                                    : kernels::ConstTensor::None(),
       .forget_offset = cell.forget_offset()},
      {.h = c.Out(0), .c = c.Out(1), .gates = c.OutOrNone(2)}, c.kernel);
}

}  // namespace

Result<std::vector<ValueSpec>> LstmCell::Infer(
    std::span<const ValueSpec> inputs) const {
  const ValueSpec& z = inputs[kZ];
  TH_RETURN_IF_ERROR(CheckFloats(inputs, {"z", "c_before"}));
  if (z.shape.rank() != 2 || z.shape[1] % 4 != 0) {
    return Status::Usage(
        fmt::format("needs gates [N, 4H], got {}", z.shape.ToString()));
  }
  const ValueSpec state{{z.shape[0], z.shape[1] / 4}, DType::kF32, z.axis};
  if (recurrent_ && inputs[kCBefore].shape != state.shape) {
    return Status::Usage(fmt::format("gates {} need a state {}, got {}",
                                     z.shape.ToString(), state.shape.ToString(),
                                     inputs[kCBefore].shape.ToString()));
  }
  return std::vector<ValueSpec>{state, state};
}

ForwardResult LstmCell::Forward(ForwardContext& context) const {
  if (context.mode == Mode::kEvaluate) return OpDef::Forward(context);
  auto self = std::static_pointer_cast<const LstmCell>(shared_from_this());
  const auto made = context.emit.Emit(
      context.name, std::make_shared<LstmCellTrain>(std::move(self)),
      {context.inputs.begin(), context.inputs.end()}, Role::kActivation);
  return {{made[0], made[1]}, {made[2]}};
}

void LstmCell::Gradient(GradientContext& context) const {
  const ValueId grad_h = context.grad_outputs[0];
  const ValueId grad_c = context.grad_outputs[1];
  std::vector<ValueId> inputs = {context.saved[0]};
  if (grad_h.valid()) inputs.push_back(grad_h);
  if (grad_c.valid()) inputs.push_back(grad_c);
  if (recurrent_) inputs.push_back(context.inputs[kCBefore]);
  const auto made =
      context.emit.Emit(context.name + ".grad_z",
                        std::make_shared<LstmCellGrad>(
                            grad_h.valid(), grad_c.valid(), recurrent_),
                        std::move(inputs), Role::kActivationGradient);
  for (size_t k = 0; k < made.size(); ++k) {
    if (context.wanted[k]) context.grad_inputs[k] = made[k];
  }
}

std::vector<InPlacePair> LstmCell::InPlace() const {
  if (!recurrent_) return {};
  return {{1, 1}};
}

int64_t LstmCell::Flops(std::span<const ValueSpec>,
                        std::span<const ValueSpec> outputs) const {
  return kForwardFlops * outputs[0].shape.elements();
}

Result<std::vector<ValueSpec>> LstmCellTrain::Infer(
    std::span<const ValueSpec> inputs) const {
  auto outputs = cell_->Infer(inputs);
  if (outputs.ok()) outputs->push_back(inputs[0]);
  return outputs;
}

std::vector<InPlacePair> LstmCellTrain::InPlace() const {
  std::vector<InPlacePair> pairs = cell_->InPlace();
  pairs.push_back({0, 2});
  return pairs;
}

std::optional<uint32_t> LstmCellGrad::grad_h() const {
  if (!with_grad_h_) return {};
  return 1;
}

std::optional<uint32_t> LstmCellGrad::grad_c() const {
  if (!with_grad_c_) return {};
  return with_grad_h_ ? 2 : 1;
}

std::optional<uint32_t> LstmCellGrad::c_before() const {
  if (!recurrent_) return {};
  return 1 + (with_grad_h_ ? 1 : 0) + (with_grad_c_ ? 1 : 0);
}

Result<std::vector<ValueSpec>> LstmCellGrad::Infer(
    std::span<const ValueSpec> inputs) const {
  TH_RETURN_IF_ERROR(CheckFloat("gates", inputs[0]));
  const std::pair<const char*, std::optional<uint32_t>> optional[] = {
      {"grad_h", grad_h()}, {"grad_c", grad_c()}, {"c_before", c_before()}};
  for (const auto& [what, input] : optional) {
    if (!input.has_value()) continue;
    TH_RETURN_IF_ERROR(CheckFloat(what, inputs[*input]));
  }
  std::vector<ValueSpec> outputs = {inputs[0]};
  if (recurrent_) outputs.push_back(inputs[*c_before()]);
  return outputs;
}

std::vector<InPlacePair> LstmCellGrad::InPlace() const {
  std::vector<InPlacePair> pairs = {{0, 0}};
  if (!recurrent_) return pairs;
  for (const auto& input : {grad_c(), grad_h(), c_before()}) {
    if (input.has_value()) pairs.push_back({*input, 1});
  }
  return pairs;
}

int64_t LstmCellGrad::Flops(std::span<const ValueSpec> inputs,
                            std::span<const ValueSpec>) const {
  return kBackwardFlops * inputs[0].shape.elements() / 4;
}

int64_t LstmCellGrad::RecomputeFlops(std::span<const ValueSpec> inputs,
                                     std::span<const ValueSpec>) const {
  return kStateFlops * inputs[0].shape.elements() / 4;
}

void LstmCell::Run(const BoundOp& c, const RunContext& run) const {
  RunCell(c, run, *this);
}

void LstmCellTrain::Run(const BoundOp& c, const RunContext& run) const {
  RunCell(c, run, cell());
}

void LstmCellGrad::Run(const BoundOp& c, const RunContext& run) const {
  const auto given = [&c](std::optional<uint32_t> input) {
    return input.has_value() ? c.In(*input) : kernels::ConstTensor::None();
  };
  kernels::LstmCellGrad({run.Rows(c.in_spec(0)), c.in_spec(0).shape[1] / 4},
                        {.gates = c.In(0),
                         .c_before = given(c_before()),
                         .grad_h = given(grad_h()),
                         .grad_c = given(grad_c())},
                        {.grad_z = c.Out(0), .grad_c_before = c.OutOrNone(1)},
                        c.kernel);
}

}  // namespace thimble::ops
