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

// Elements of the rows that a run uses: all of them where `spec` has no batch.
int64_t Used(const ValueSpec& spec, const RunContext& run) {
  return spec.batched ? run.count * spec.shape.elements_from(1)
                      : spec.shape.elements();
}

int64_t Rows(const ValueSpec& spec, const RunContext& run) {
  return spec.batched ? run.count : spec.shape[0];
}

BoundOp BindNormalize(const BindContext& c) {
  const auto& op = c.As<ops::Normalize>();
  return [c, &op](const RunContext& run) {
    const ValueSpec& x = c.inputs[0];
    kernels::NormalizeU8(Rows(x, run), x.shape[1], x.shape.elements_from(2),
                         c.In<uint8_t>(0), op.scale().data(), op.shift().data(),
                         c.Out(0), c.kernel);
  };
}

BoundOp BindImageSlice(const BindContext& c) {
  const auto& op = c.As<ops::ImageSlice>();
  return [c, &op](const RunContext& run) {
    const ValueSpec& x = c.inputs[0];
    kernels::NormalizeU8Slice(Rows(x, run), x.shape[1],
                              x.shape.elements_from(2), op.begin(), op.count(),
                              c.In<uint8_t>(0), op.scale().data(),
                              op.shift().data(), c.Out(0), c.kernel);
  };
}

BoundOp BindConv2d(const BindContext& c) {
  const auto shape = c.As<ops::Conv2d>().ShapeOf(c.inputs[0], c.inputs[1]);
  return [c, shape](const RunContext& run) {
    kernels::Conv2dForward(shape, Rows(c.inputs[0], run), c.In(0), c.In(1),
                           c.Out(0), c.kernel);
  };
}

BoundOp BindConv2dGradInput(const BindContext& c) {
  const auto shape = c.As<ops::Conv2dGradInput>().shape();
  return [c, shape](const RunContext& run) {
    kernels::Conv2dGradInput(shape, Rows(c.inputs[0], run), c.In(0), c.In(1),
                             c.Out(0), c.kernel);
  };
}

BoundOp BindConv2dGradWeight(const BindContext& c) {
  const auto shape = c.As<ops::Conv2dGradWeight>().shape();
  return [c, shape](const RunContext& run) {
    kernels::Conv2dGradWeight(
        shape, Rows(c.inputs[0], run), {.data = c.In(0)}, {.data = c.In(1)},
        {.data = c.Out(0), .accumulate = c.Adds(0, run)}, c.kernel);
  };
}

BoundOp BindLinear(const BindContext& c) {
  const kernels::LinearShape shape{c.inputs[1].shape[1], c.inputs[1].shape[0]};
  return [c, shape](const RunContext& run) {
    kernels::LinearForward(shape, Rows(c.inputs[0], run), c.In(0), c.In(1),
                           c.Out(0), c.kernel);
  };
}

BoundOp BindLinearGradInput(const BindContext& c) {
  const kernels::LinearShape shape{c.inputs[1].shape[1], c.inputs[1].shape[0]};
  const bool with_other = c.As<ops::LinearGradInput>().with_other();
  const kernels::LinearTarget grad_x{c.Out(0), with_other ? c.In(2) : nullptr};
  return [c, shape, grad_x](const RunContext& run) {
    kernels::LinearGradInput(shape, Rows(c.inputs[0], run), c.In(0), c.In(1),
                             grad_x, c.kernel);
  };
}

BoundOp BindLinearGradWeight(const BindContext& c) {
  const kernels::LinearShape shape{c.outputs[0].shape[1],
                                   c.outputs[0].shape[0]};
  return [c, shape](const RunContext& run) {
    kernels::LinearGradWeight(
        shape, Rows(c.inputs[0], run), c.In(0), c.In(1),
        {.data = c.Out(0), .addend = c.Adds(0, run) ? c.Out(0) : nullptr},
        c.kernel);
  };
}

BoundOp BindBias(const BindContext& c) {
  return [c](const RunContext& run) {
    const ValueSpec& x = c.inputs[0];
    kernels::BiasAdd(Rows(x, run), x.shape[1], x.shape.elements_from(2),
                     c.In(0), c.In(1), c.Out(0), c.kernel);
  };
}

BoundOp BindBiasGrad(const BindContext& c) {
  return [c](const RunContext& run) {
    const ValueSpec& x = c.inputs[0];
    kernels::BiasGrad(Rows(x, run), x.shape[1], x.shape.elements_from(2),
                      c.In(0), c.Adds(0, run) ? c.Out(0) : nullptr, c.Out(0),
                      c.kernel);
  };
}

BoundOp BindRelu(const BindContext& c) {
  return [c](const RunContext& run) {
    kernels::Relu(Used(c.inputs[0], run), c.In(0), c.Out(0), c.kernel);
  };
}

BoundOp BindReluWithMask(const BindContext& c) {
  return [c](const RunContext& run) {
    kernels::ReluWithMask(Used(c.inputs[0], run), c.In(0), c.Out(0),
                          c.Out<uint8_t>(1), c.kernel);
  };
}

BoundOp BindReluGradFromOutput(const BindContext& c) {
  return [c](const RunContext& run) {
    kernels::ReluGradFromOutput(Used(c.inputs[0], run), c.In(0), c.In(1),
                                c.Out(0), c.kernel);
  };
}

BoundOp BindReluGradFromMask(const BindContext& c) {
  return [c](const RunContext& run) {
    kernels::ReluGradFromMask(Used(c.inputs[0], run), c.In<uint8_t>(0), c.In(1),
                              c.Out(0), c.kernel);
  };
}

BoundOp BindMaxPool(const BindContext& c) {
  const auto shape =
      ops::PoolShapeOf(c.inputs[0], c.As<ops::MaxPool>().window());
  uint8_t* winner = c.outputs.size() > 1 ? c.Out<uint8_t>(1) : nullptr;
  return [c, shape, winner](const RunContext& run) {
    kernels::MaxPool(shape, Rows(c.inputs[0], run), c.In(0), c.Out(0), winner,
                     c.kernel);
  };
}

BoundOp BindMaxPoolGrad(const BindContext& c) {
  const auto shape =
      ops::PoolShapeOf(c.outputs[0], c.As<ops::MaxPoolGrad>().window());
  return [c, shape](const RunContext& run) {
    kernels::MaxPoolGrad(shape, Rows(c.inputs[0], run), c.In<uint8_t>(0),
                         c.In(1), c.Out(0), c.kernel);
  };
}

BoundOp BindAveragePool(const BindContext& c) {
  const auto shape =
      ops::PoolShapeOf(c.inputs[0], c.As<ops::AveragePool>().window());
  return [c, shape](const RunContext& run) {
    kernels::AveragePool(shape, Rows(c.inputs[0], run), c.In(0), c.Out(0),
                         c.kernel);
  };
}

BoundOp BindAveragePoolGrad(const BindContext& c) {
  const auto shape =
      ops::PoolShapeOf(c.outputs[0], c.As<ops::AveragePoolGrad>().window());
  return [c, shape](const RunContext& run) {
    kernels::AveragePoolGrad(shape, Rows(c.inputs[0], run), c.In(0), c.Out(0),
                             c.kernel);
  };
}

BoundOp BindGlobalAveragePool(const BindContext& c) {
  return [c](const RunContext& run) {
    const ValueSpec& x = c.inputs[0];
    kernels::GlobalAveragePool(Rows(x, run), x.shape[1],
                               x.shape.elements_from(2), c.In(0), c.Out(0),
                               c.kernel);
  };
}

BoundOp BindGlobalAveragePoolGrad(const BindContext& c) {
  return [c](const RunContext& run) {
    const ValueSpec& x = c.outputs[0];
    kernels::GlobalAveragePoolGrad(Rows(x, run), x.shape[1],
                                   x.shape.elements_from(2), c.In(0), c.Out(0),
                                   c.kernel);
  };
}

BoundOp BindDropout(const BindContext& c) {
  const auto& op = c.As<ops::Dropout>();
  const int64_t elements = c.inputs[0].shape.elements_from(1);
  return [c, &op, elements](const RunContext& run) {
    kernels::Dropout(Rows(c.inputs[0], run), elements,
                     {.seed = run.seed,
                      .step = run.step,
                      .stream = op.stream(),
                      .first = run.first,
                      .rate = op.rate()},
                     c.In(0), c.Out(0), c.kernel);
  };
}

BoundOp BindAdd(const BindContext& c) {
  return [c](const RunContext& run) {
    kernels::Add(Used(c.outputs[0], run), c.In(0), c.In(1), c.Out(0), c.kernel);
  };
}

BoundOp BindShortcut(const BindContext& c) {
  const auto shape = c.As<ops::Shortcut>().ShapeOf(c.inputs[0]);
  return [c, shape](const RunContext& run) {
    kernels::Shortcut(shape, Rows(c.inputs[0], run), c.In(0), c.Out(0),
                      c.kernel);
  };
}

BoundOp BindShortcutGrad(const BindContext& c) {
  const auto shape = c.As<ops::ShortcutGrad>().shape();
  return [c, shape](const RunContext& run) {
    kernels::ShortcutGrad(shape, Rows(c.inputs[0], run), c.In(0), c.Out(0),
                          c.kernel);
  };
}

BoundOp BindSoftmaxCrossEntropy(const BindContext& c) {
  return [c](const RunContext& run) {
    kernels::SoftmaxCrossEntropy(Rows(c.inputs[0], run), c.inputs[0].shape[1],
                                 c.In(0), c.In<int32_t>(1), c.Out(0),
                                 c.Out<int32_t>(1), c.kernel);
  };
}

BoundOp BindSoftmaxCrossEntropyGrad(const BindContext& c) {
  return [c](const RunContext& run) {
    // The step's loss is the mean over all of its microbatches.
    kernels::SoftmaxCrossEntropyGrad(
        Rows(c.inputs[0], run), c.inputs[0].shape[1], c.In(0), c.In<int32_t>(1),
        1.0f / static_cast<float>(run.images), c.Out(0), c.kernel);
  };
}

BoundOp BindAccumulate(const BindContext& c) {
  const int64_t elements = c.outputs[0].shape.elements();
  const int64_t group = c.As<ops::Accumulate>().group_images();
  return [c, elements, group](const RunContext& run) {
    ForGroups(group > 0 ? group : run.count, run.count, [&](const Group& g) {
      const float* part = c.In(0) + g.index * elements;
      if (g.index == 0 && !c.Adds(0, run)) {
        std::memcpy(c.Out(0), part, c.outputs[0].bytes());
      } else {
        kernels::Add(elements, c.Out(0), part, c.Out(0), c.kernel);
      }
    });
  };
}

BoundOp BindSgdUpdate(const BindContext& c) {
  const ops::SgdAttributes a = c.As<ops::SgdUpdate>().attributes();
  float* velocity = c.inputs.size() > 2 ? c.In(2) : nullptr;
  return [c, a, velocity](const RunContext& run) {
    kernels::SgdUpdate(
        c.inputs[0].shape.elements(),
        {run.learning_rate, a.momentum, a.weight_decay, a.nesterov}, c.In(0),
        c.In(1), velocity, c.kernel);
  };
}

BoundOp BindCommit(const BindContext& c) {
  return [c](const RunContext&) {
    std::memcpy(c.inputs.bytes(0), c.inputs.bytes(1), c.inputs[0].bytes());
  };
}

}  // namespace

BoundOp Bind(const BindContext& context) {
  switch (context.def->kind()) {
    case OpKind::kNormalize:
      return BindNormalize(context);
    case OpKind::kImageSlice:
      return BindImageSlice(context);
    case OpKind::kConv2d:
      return BindConv2d(context);
    case OpKind::kConv2dGradInput:
      return BindConv2dGradInput(context);
    case OpKind::kConv2dGradWeight:
      return BindConv2dGradWeight(context);
    case OpKind::kLinear:
      return BindLinear(context);
    case OpKind::kLinearGradInput:
      return BindLinearGradInput(context);
    case OpKind::kLinearGradWeight:
      return BindLinearGradWeight(context);
    case OpKind::kBias:
      return BindBias(context);
    case OpKind::kBiasGrad:
      return BindBiasGrad(context);
    case OpKind::kBatchNormTrain:
      return BindBatchNormTrain(context);
    case OpKind::kBatchNormApply:
      return BindBatchNormApply(context);
    case OpKind::kBatchNormGrad:
      return BindBatchNormGrad(context);
    case OpKind::kBatchNormTrack:
      return BindBatchNormTrack(context);
    case OpKind::kRelu:
      return BindRelu(context);
    case OpKind::kReluWithMask:
      return BindReluWithMask(context);
    case OpKind::kReluGradFromOutput:
      return BindReluGradFromOutput(context);
    case OpKind::kReluGradFromMask:
      return BindReluGradFromMask(context);
    case OpKind::kDropout:
      return BindDropout(context);
    case OpKind::kMaxPool:
      return BindMaxPool(context);
    case OpKind::kMaxPoolGrad:
      return BindMaxPoolGrad(context);
    case OpKind::kAveragePool:
      return BindAveragePool(context);
    case OpKind::kAveragePoolGrad:
      return BindAveragePoolGrad(context);
    case OpKind::kGlobalAveragePool:
      return BindGlobalAveragePool(context);
    case OpKind::kGlobalAveragePoolGrad:
      return BindGlobalAveragePoolGrad(context);
    case OpKind::kAdd:
      return BindAdd(context);
    case OpKind::kShortcut:
      return BindShortcut(context);
    case OpKind::kShortcutGrad:
      return BindShortcutGrad(context);
    case OpKind::kSoftmaxCrossEntropy:
      return BindSoftmaxCrossEntropy(context);
    case OpKind::kSoftmaxCrossEntropyGrad:
      return BindSoftmaxCrossEntropyGrad(context);
    case OpKind::kAccumulate:
      return BindAccumulate(context);
    case OpKind::kSgdUpdate:
      return BindSgdUpdate(context);
    case OpKind::kCommit:
      return BindCommit(context);
    case OpKind::kImageConv:
      return BindImageConv(context);
    case OpKind::kImageConvGradWeight:
      return BindImageConvGradWeight(context);
    case OpKind::kMoments:
      return BindMoments(context);
    case OpKind::kNormReluConv:
      return BindNormReluConv(context);
    case OpKind::kNormReluConvGradInput:
      return BindNormReluConvGradInput(context);
    case OpKind::kNormReluConvGradWeight:
      return BindNormReluConvGradWeight(context);
    case OpKind::kNormReluConvGradSums:
      return BindNormReluConvGradSums(context);
    case OpKind::kNormReluConvGradRest:
      return BindNormReluConvGradRest(context);
    case OpKind::kNormGrad:
      return BindNormGrad(context);
    case OpKind::kLstmGates:
      return BindLstmGates(context);
    case OpKind::kLstmGatesGradWeight:
      return BindLstmGatesGradWeight(context);
    case OpKind::kLstmCell:
      return BindLstmCell(context);
    case OpKind::kLstmCellTrain:
      return BindLstmCellTrain(context);
    case OpKind::kLstmCellGrad:
      return BindLstmCellGrad(context);
    case OpKind::kBatchNorm:
    case OpKind::kFusedConv:
    case OpKind::kReshape:
      break;  // never executed
  }
  TH_CHECK(false && "op is not executable");
  return {};
}

}  // namespace thimble::runtime
