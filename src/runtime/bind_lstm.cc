// SPDX-License-Identifier: Apache-2.0
#include "runtime/bind_lstm.h"

#include <optional>

#include "kernels/elementwise/elementwise.h"
#include "kernels/lstm/lstm.h"
#include "kernels/matmul/matmul.h"
#include "ops/linear.h"
#include "ops/lstm_cell.h"
#include "ops/lstm_gates.h"

namespace thimble::runtime {
namespace {

void RunCell(const BoundOp& c, const RunContext& run,
             const ops::LstmCell& cell) {
  kernels::LstmCell({Rows(c.inputs[0], run), c.outputs[0].shape[1]},
                    {.z = c.In(0),
                     .c_before = cell.recurrent() ? c.In(1) : nullptr,
                     .forget_offset = cell.forget_offset()},
                    {.h = c.Out(0),
                     .c = c.Out(1),
                     .gates = c.outputs.size() > 2 ? c.Out(2) : nullptr},
                    c.kernel);
}

}  // namespace

void RunLstmGates(const BoundOp& c, const RunContext& run) {
  const int64_t rows = Rows(c.inputs[0], run);
  const kernels::LinearShape x = ops::LinearShapeOf(c.inputs[1]);
  float* z = c.Out(0);
  kernels::LinearForward(x, rows, c.In(0), c.In(1), z, c.kernel);
  if (c.As<ops::LstmGates>().recurrent()) {
    kernels::LinearForward(ops::LinearShapeOf(c.inputs[4]), rows, c.In(3),
                           c.In(4), kernels::LinearTarget{z, z}, c.kernel);
  }
  kernels::BiasAdd(rows, x.out, 1, z, c.In(2), z, c.kernel);
}

void RunLstmGatesGradWeight(const BoundOp& c, const RunContext& run) {
  const auto& op = c.As<ops::LstmGatesGradWeight>();
  const auto target = [&](size_t output) {
    return kernels::LinearTarget{
        c.Out(output),
        op.accumulate() ? c.In(op.first_sum() + output) : nullptr};
  };
  const int64_t rows = Rows(c.inputs[0], run);
  const kernels::LinearShape x = ops::LinearShapeOf(c.outputs[0]);
  const float* grad_z = c.In(1);
  const kernels::LinearTarget grad_bias = target(1);
  kernels::LinearGradWeight(x, rows, c.In(0), grad_z, target(0), c.kernel);
  kernels::BiasGrad(rows, x.out, 1, grad_z, grad_bias.addend, grad_bias.data,
                    c.kernel);
  if (!op.recurrent()) return;
  kernels::LinearGradWeight(ops::LinearShapeOf(c.outputs[2]), rows, c.In(2),
                            grad_z, target(2), c.kernel);
}

void RunLstmCell(const BoundOp& c, const RunContext& run) {
  RunCell(c, run, c.As<ops::LstmCell>());
}

void RunLstmCellTrain(const BoundOp& c, const RunContext& run) {
  RunCell(c, run, c.As<ops::LstmCellTrain>().cell());
}

void RunLstmCellGrad(const BoundOp& c, const RunContext& run) {
  const auto& op = c.As<ops::LstmCellGrad>();
  const auto given = [&c](std::optional<uint32_t> input) -> const float* {
    return input.has_value() ? c.In(*input) : nullptr;
  };
  kernels::LstmCellGrad(
      {Rows(c.inputs[0], run), c.inputs[0].shape[1] / 4},
      {.gates = c.In(0),
       .c_before = given(op.c_before()),
       .grad_h = given(op.grad_h()),
       .grad_c = given(op.grad_c())},
      {.grad_z = c.Out(0),
       .grad_c_before = c.outputs.size() > 1 ? c.Out(1) : nullptr},
      c.kernel);
}

}  // namespace thimble::runtime
