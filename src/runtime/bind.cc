// SPDX-License-Identifier: Apache-2.0
#include "runtime/bind.h"

#include <cstring>

#include "base/check.h"
#include "kernels/conv/conv.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/layout/layout.h"
#include "kernels/matmul/matmul.h"
#include "kernels/pool/pool.h"
#include "kernels/softmax/softmax.h"
#include "kernels/update/update.h"
#include "ops/accumulate.h"
#include "ops/conv2d.h"
#include "ops/dropout.h"
#include "ops/image_slice.h"
#include "ops/linear.h"
#include "ops/normalize.h"
#include "ops/pool.h"
#include "ops/shortcut.h"
#include "ops/update.h"
#include "runtime/bind_fused.h"
#include "runtime/bind_lstm.h"
#include "runtime/bind_norm.h"
#include "runtime/groups.h"

namespace thimble::runtime {
namespace {

void RunNormalize(const BoundOp& c, const RunContext& run) {
  const auto& op = c.As<ops::Normalize>();
  const ValueSpec& x = c.inputs[0];
  kernels::NormalizeU8(Rows(x, run), x.shape[1], x.shape.elements_from(2),
                       c.In<uint8_t>(0), op.scale().data(), op.shift().data(),
                       c.Out(0), c.kernel);
}

void RunImageSlice(const BoundOp& c, const RunContext& run) {
  const auto& op = c.As<ops::ImageSlice>();
  const ValueSpec& x = c.inputs[0];
  kernels::NormalizeU8Slice(Rows(x, run), x.shape[1], x.shape.elements_from(2),
                            op.begin(), op.count(), c.In<uint8_t>(0),
                            op.scale().data(), op.shift().data(), c.Out(0),
                            c.kernel);
}

void RunConv2d(const BoundOp& c, const RunContext& run) {
  const auto shape = c.As<ops::Conv2d>().ShapeOf(c.inputs[0], c.inputs[1]);
  kernels::Conv2dForward(shape, Rows(c.inputs[0], run), c.In(0), c.In(1),
                         c.Out(0), c.kernel);
}

void RunConv2dGradInput(const BoundOp& c, const RunContext& run) {
  const auto shape = c.As<ops::Conv2dGradInput>().shape();
  kernels::Conv2dGradInput(shape, Rows(c.inputs[0], run), c.In(0), c.In(1),
                           c.Out(0), c.kernel);
}

void RunConv2dGradWeight(const BoundOp& c, const RunContext& run) {
  const auto shape = c.As<ops::Conv2dGradWeight>().shape();
  kernels::Conv2dGradWeight(
      shape, Rows(c.inputs[0], run), {.data = c.In(0)}, {.data = c.In(1)},
      {.data = c.Out(0), .accumulate = c.Adds(0, run)}, c.kernel);
}

void RunLinear(const BoundOp& c, const RunContext& run) {
  const kernels::LinearShape shape{c.inputs[1].shape[1], c.inputs[1].shape[0]};
  kernels::LinearForward(shape, Rows(c.inputs[0], run), c.In(0), c.In(1),
                         c.Out(0), c.kernel);
}

void RunLinearGradInput(const BoundOp& c, const RunContext& run) {
  const kernels::LinearShape shape{c.inputs[1].shape[1], c.inputs[1].shape[0]};
  const bool with_other = c.As<ops::LinearGradInput>().with_other();
  const kernels::LinearTarget grad_x{c.Out(0), with_other ? c.In(2) : nullptr};
  kernels::LinearGradInput(shape, Rows(c.inputs[0], run), c.In(0), c.In(1),
                           grad_x, c.kernel);
}

void RunLinearGradWeight(const BoundOp& c, const RunContext& run) {
  const kernels::LinearShape shape{c.outputs[0].shape[1],
                                   c.outputs[0].shape[0]};
  kernels::LinearGradWeight(
      shape, Rows(c.inputs[0], run), c.In(0), c.In(1),
      {.data = c.Out(0), .addend = c.Adds(0, run) ? c.Out(0) : nullptr},
      c.kernel);
}

void RunBias(const BoundOp& c, const RunContext& run) {
  const ValueSpec& x = c.inputs[0];
  kernels::BiasAdd(Rows(x, run), x.shape[1], x.shape.elements_from(2), c.In(0),
                   c.In(1), c.Out(0), c.kernel);
}

void RunBiasGrad(const BoundOp& c, const RunContext& run) {
  const ValueSpec& x = c.inputs[0];
  kernels::BiasGrad(Rows(x, run), x.shape[1], x.shape.elements_from(2), c.In(0),
                    c.Adds(0, run) ? c.Out(0) : nullptr, c.Out(0), c.kernel);
}

void RunRelu(const BoundOp& c, const RunContext& run) {
  kernels::Relu(Used(c.inputs[0], run), c.In(0), c.Out(0), c.kernel);
}

void RunReluWithMask(const BoundOp& c, const RunContext& run) {
  kernels::ReluWithMask(Used(c.inputs[0], run), c.In(0), c.Out(0),
                        c.Out<uint8_t>(1), c.kernel);
}

void RunReluGradFromOutput(const BoundOp& c, const RunContext& run) {
  kernels::ReluGradFromOutput(Used(c.inputs[0], run), c.In(0), c.In(1),
                              c.Out(0), c.kernel);
}

void RunReluGradFromMask(const BoundOp& c, const RunContext& run) {
  kernels::ReluGradFromMask(Used(c.inputs[0], run), c.In<uint8_t>(0), c.In(1),
                            c.Out(0), c.kernel);
}

void RunMaxPool(const BoundOp& c, const RunContext& run) {
  const auto shape =
      ops::PoolShapeOf(c.inputs[0], c.As<ops::MaxPool>().window());
  uint8_t* winner = c.outputs.size() > 1 ? c.Out<uint8_t>(1) : nullptr;
  kernels::MaxPool(shape, Rows(c.inputs[0], run), c.In(0), c.Out(0), winner,
                   c.kernel);
}

void RunMaxPoolGrad(const BoundOp& c, const RunContext& run) {
  const auto shape =
      ops::PoolShapeOf(c.outputs[0], c.As<ops::MaxPoolGrad>().window());
  kernels::MaxPoolGrad(shape, Rows(c.inputs[0], run), c.In<uint8_t>(0), c.In(1),
                       c.Out(0), c.kernel);
}

void RunAveragePool(const BoundOp& c, const RunContext& run) {
  const auto shape =
      ops::PoolShapeOf(c.inputs[0], c.As<ops::AveragePool>().window());
  kernels::AveragePool(shape, Rows(c.inputs[0], run), c.In(0), c.Out(0),
                       c.kernel);
}

void RunAveragePoolGrad(const BoundOp& c, const RunContext& run) {
  const auto shape =
      ops::PoolShapeOf(c.outputs[0], c.As<ops::AveragePoolGrad>().window());
  kernels::AveragePoolGrad(shape, Rows(c.inputs[0], run), c.In(0), c.Out(0),
                           c.kernel);
}

void RunGlobalAveragePool(const BoundOp& c, const RunContext& run) {
  const ValueSpec& x = c.inputs[0];
  kernels::GlobalAveragePool(Rows(x, run), x.shape[1], x.shape.elements_from(2),
                             c.In(0), c.Out(0), c.kernel);
}

void RunGlobalAveragePoolGrad(const BoundOp& c, const RunContext& run) {
  const ValueSpec& x = c.outputs[0];
  kernels::GlobalAveragePoolGrad(Rows(x, run), x.shape[1],
                                 x.shape.elements_from(2), c.In(0), c.Out(0),
                                 c.kernel);
}

void RunDropout(const BoundOp& c, const RunContext& run) {
  const auto& op = c.As<ops::Dropout>();
  const int64_t elements = c.inputs[0].shape.elements_from(1);
  kernels::Dropout(Rows(c.inputs[0], run), elements,
                   {.seed = run.seed,
                    .step = run.step,
                    .stream = op.stream(),
                    .first = run.first,
                    .rate = op.rate()},
                   c.In(0), c.Out(0), c.kernel);
}

void RunAdd(const BoundOp& c, const RunContext& run) {
  kernels::Add(Used(c.outputs[0], run), c.In(0), c.In(1), c.Out(0), c.kernel);
}

void RunShortcut(const BoundOp& c, const RunContext& run) {
  const auto shape = c.As<ops::Shortcut>().ShapeOf(c.inputs[0]);
  kernels::Shortcut(shape, Rows(c.inputs[0], run), c.In(0), c.Out(0), c.kernel);
}

void RunShortcutGrad(const BoundOp& c, const RunContext& run) {
  const auto shape = c.As<ops::ShortcutGrad>().shape();
  kernels::ShortcutGrad(shape, Rows(c.inputs[0], run), c.In(0), c.Out(0),
                        c.kernel);
}

void RunSoftmaxCrossEntropy(const BoundOp& c, const RunContext& run) {
  kernels::SoftmaxCrossEntropy(Rows(c.inputs[0], run), c.inputs[0].shape[1],
                               c.In(0), c.In<int32_t>(1), c.Out(0),
                               c.Out<int32_t>(1), c.kernel);
}

void RunSoftmaxCrossEntropyGrad(const BoundOp& c, const RunContext& run) {
  // The step's loss is the mean over all of its microbatches.
  kernels::SoftmaxCrossEntropyGrad(
      Rows(c.inputs[0], run), c.inputs[0].shape[1], c.In(0), c.In<int32_t>(1),
      1.0f / static_cast<float>(run.images), c.Out(0), c.kernel);
}

void RunAccumulate(const BoundOp& c, const RunContext& run) {
  const int64_t elements = c.outputs[0].shape.elements();
  const int64_t group = c.As<ops::Accumulate>().group_images();
  ForGroups(group > 0 ? group : run.count, run.count, [&](const Group& g) {
    const float* part = c.In(0) + g.index * elements;
    if (g.index == 0 && !c.Adds(0, run)) {
      std::memcpy(c.Out(0), part, c.outputs[0].bytes());
    } else {
      kernels::Add(elements, c.Out(0), part, c.Out(0), c.kernel);
    }
  });
}

void RunSgdUpdate(const BoundOp& c, const RunContext& run) {
  const ops::SgdAttributes a = c.As<ops::SgdUpdate>().attributes();
  float* velocity = c.inputs.size() > 2 ? c.In(2) : nullptr;
  kernels::SgdUpdate(
      c.inputs[0].shape.elements(),
      {run.learning_rate, a.momentum, a.weight_decay, a.nesterov}, c.In(0),
      c.In(1), velocity, c.kernel);
}

void RunCommit(const BoundOp& c, const RunContext&) {
  std::memcpy(c.inputs.bytes(0), c.inputs.bytes(1), c.inputs[0].bytes());
}

}  // namespace

OpRunner RunnerOf(OpKind kind) {
  switch (kind) {
    case OpKind::kNormalize:
      return RunNormalize;
    case OpKind::kImageSlice:
      return RunImageSlice;
    case OpKind::kConv2d:
      return RunConv2d;
    case OpKind::kConv2dGradInput:
      return RunConv2dGradInput;
    case OpKind::kConv2dGradWeight:
      return RunConv2dGradWeight;
    case OpKind::kLinear:
      return RunLinear;
    case OpKind::kLinearGradInput:
      return RunLinearGradInput;
    case OpKind::kLinearGradWeight:
      return RunLinearGradWeight;
    case OpKind::kBias:
      return RunBias;
    case OpKind::kBiasGrad:
      return RunBiasGrad;
    case OpKind::kBatchNormTrain:
      return RunBatchNormTrain;
    case OpKind::kBatchNormApply:
      return RunBatchNormApply;
    case OpKind::kBatchNormGrad:
      return RunBatchNormGrad;
    case OpKind::kBatchNormTrack:
      return RunBatchNormTrack;
    case OpKind::kRelu:
      return RunRelu;
    case OpKind::kReluWithMask:
      return RunReluWithMask;
    case OpKind::kReluGradFromOutput:
      return RunReluGradFromOutput;
    case OpKind::kReluGradFromMask:
      return RunReluGradFromMask;
    case OpKind::kDropout:
      return RunDropout;
    case OpKind::kMaxPool:
      return RunMaxPool;
    case OpKind::kMaxPoolGrad:
      return RunMaxPoolGrad;
    case OpKind::kAveragePool:
      return RunAveragePool;
    case OpKind::kAveragePoolGrad:
      return RunAveragePoolGrad;
    case OpKind::kGlobalAveragePool:
      return RunGlobalAveragePool;
    case OpKind::kGlobalAveragePoolGrad:
      return RunGlobalAveragePoolGrad;
    case OpKind::kAdd:
      return RunAdd;
    case OpKind::kShortcut:
      return RunShortcut;
    case OpKind::kShortcutGrad:
      return RunShortcutGrad;
    case OpKind::kSoftmaxCrossEntropy:
      return RunSoftmaxCrossEntropy;
    case OpKind::kSoftmaxCrossEntropyGrad:
      return RunSoftmaxCrossEntropyGrad;
    case OpKind::kAccumulate:
      return RunAccumulate;
    case OpKind::kSgdUpdate:
      return RunSgdUpdate;
    case OpKind::kCommit:
      return RunCommit;
    case OpKind::kImageConv:
      return RunImageConv;
    case OpKind::kImageConvGradWeight:
      return RunImageConvGradWeight;
    case OpKind::kMoments:
      return RunMoments;
    case OpKind::kNormReluConv:
      return RunNormReluConv;
    case OpKind::kNormReluConvGradInput:
      return RunNormReluConvGradInput;
    case OpKind::kNormReluConvGradWeight:
      return RunNormReluConvGradWeight;
    case OpKind::kNormReluConvGradSums:
      return RunNormReluConvGradSums;
    case OpKind::kNormReluConvGradRest:
      return RunNormReluConvGradRest;
    case OpKind::kNormGrad:
      return RunNormGrad;
    case OpKind::kLstmGates:
      return RunLstmGates;
    case OpKind::kLstmGatesGradWeight:
      return RunLstmGatesGradWeight;
    case OpKind::kLstmCell:
      return RunLstmCell;
    case OpKind::kLstmCellTrain:
      return RunLstmCellTrain;
    case OpKind::kLstmCellGrad:
      return RunLstmCellGrad;
    case OpKind::kBatchNorm:
    case OpKind::kFusedConv:
    case OpKind::kReshape:
      break;  // never executed
  }
  TH_CHECK(false && "op is not executable");
  return nullptr;
}

}  // namespace thimble::runtime
