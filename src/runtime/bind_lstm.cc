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

// An unrolled network has thousands of these ops: what they keep is copied out
// of the context, which is many times as large.

// How many rows of a value a run uses.
struct RowCount {
  explicit RowCount(const ValueSpec& spec)
      : batched(spec.batched), all(spec.shape[0]) {}
  int64_t operator()(const RunContext& run) const {
    return batched ? run.count : all;
  }
  bool batched;
  int64_t all;
};

// One of the two products of a step; `of` is x or h.
struct StepProduct {
  kernels::LinearShape shape;
  const float* of = nullptr;  // null: not there
  const float* weight = nullptr;
};

BoundOp BindCell(const BindContext& c, const ops::LstmCell& cell) {
  const kernels::LstmCellInput in = {
      .z = c.In(0),
      .c_before = cell.recurrent() ? c.In(1) : nullptr,
      .forget_offset = cell.forget_offset()};
  const kernels::LstmCellOutput out = {
      .h = c.Out(0),
      .c = c.Out(1),
      .gates = c.outputs.size() > 2 ? c.Out(2) : nullptr};
  return [rows = RowCount(c.inputs[0]), hidden = c.outputs[0].shape[1], in, out,
          kernel = c.kernel](const RunContext& run) {
    kernels::LstmCell({rows(run), hidden}, in, out, kernel);
  };
}

}  // namespace

BoundOp BindLstmGates(const BindContext& c) {
  StepProduct h;
  if (c.As<ops::LstmGates>().recurrent()) {
    h = {ops::LinearShapeOf(c.inputs[4]), c.In(3), c.In(4)};
  }
  return
      [rows_of = RowCount(c.inputs[0]),
       x = StepProduct{ops::LinearShapeOf(c.inputs[1]), c.In(0), c.In(1)}, h,
       bias = c.In(2), z = c.Out(0), kernel = c.kernel](const RunContext& run) {
        const int64_t rows = rows_of(run);
        kernels::LinearForward(x.shape, rows, x.of, x.weight, z, kernel);
        if (h.of != nullptr) {
          kernels::LinearForward(h.shape, rows, h.of, h.weight,
                                 kernels::LinearTarget{z, z}, kernel);
        }
        kernels::BiasAdd(rows, x.shape.out, 1, z, bias, z, kernel);
      };
}

BoundOp BindLstmGatesGradWeight(const BindContext& c) {
  const auto& op = c.As<ops::LstmGatesGradWeight>();
  const auto target = [&](size_t output) {
    return kernels::LinearTarget{
        c.Out(output),
        op.accumulate() ? c.In(op.first_sum() + output) : nullptr};
  };
  StepProduct h;
  kernels::LinearTarget grad_h_weight;
  if (op.recurrent()) {
    h = {.shape = ops::LinearShapeOf(c.outputs[2]), .of = c.In(2)};
    grad_h_weight = target(2);
  }
  return [rows_of = RowCount(c.inputs[0]),
          x = StepProduct{.shape = ops::LinearShapeOf(c.outputs[0]),
                          .of = c.In(0)},
          h, grad_z = c.In(1), grad_x_weight = target(0), grad_bias = target(1),
          grad_h_weight, kernel = c.kernel](const RunContext& run) {
    const int64_t rows = rows_of(run);
    kernels::LinearGradWeight(x.shape, rows, x.of, grad_z, grad_x_weight,
                              kernel);
    kernels::BiasGrad(rows, x.shape.out, 1, grad_z, grad_bias.addend,
                      grad_bias.data, kernel);
    if (h.of == nullptr) return;
    kernels::LinearGradWeight(h.shape, rows, h.of, grad_z, grad_h_weight,
                              kernel);
  };
}

BoundOp BindLstmCell(const BindContext& c) {
  return BindCell(c, c.As<ops::LstmCell>());
}

BoundOp BindLstmCellTrain(const BindContext& c) {
  return BindCell(c, c.As<ops::LstmCellTrain>().cell());
}

BoundOp BindLstmCellGrad(const BindContext& c) {
  const auto& op = c.As<ops::LstmCellGrad>();
  const auto given = [&c](std::optional<uint32_t> input) -> const float* {
    return input.has_value() ? c.In(*input) : nullptr;
  };
  const kernels::LstmCellGradInput in = {.gates = c.In(0),
                                         .c_before = given(op.c_before()),
                                         .grad_h = given(op.grad_h()),
                                         .grad_c = given(op.grad_c())};
  const kernels::LstmCellGradOutput out = {
      .grad_z = c.Out(0),
      .grad_c_before = c.outputs.size() > 1 ? c.Out(1) : nullptr};
  return [rows = RowCount(c.inputs[0]), hidden = c.inputs[0].shape[1] / 4, in,
          out, kernel = c.kernel](const RunContext& run) {
    kernels::LstmCellGrad({rows(run), hidden}, in, out, kernel);
  };
}

}  // namespace thimble::runtime
