// SPDX-License-Identifier: Apache-2.0
#include "runtime/bind_norm.h"

#include "base/check.h"
#include "kernels/norm/norm.h"
#include "ops/batch_norm.h"
#include "runtime/groups.h"

namespace thimble::runtime {

void RunBatchNormTrain(const BoundOp& c, const RunContext& run) {
  const float epsilon = c.As<ops::BatchNormTrain>().epsilon();
  const auto shape = ops::BatchNormShapeOf(c.inputs[0]);
  const int64_t group = ops::GroupImages(c.inputs[0], c.outputs[1]);
  ForGroups(group, run.count, [&](const Group& g) {
    const int64_t at = g.first * shape.channels * shape.pixels;
    const int64_t of = g.index * shape.channels;
    kernels::BatchNormTrain(shape, g.images, epsilon, c.In(0) + at, c.In(1),
                            c.In(2), c.Out(0) + at, c.Out(1) + of,
                            c.Out(2) + of, c.kernel);
  });
}

void RunBatchNormApply(const BoundOp& c, const RunContext& run) {
  const float epsilon = c.As<ops::BatchNormApply>().epsilon();
  const auto shape = ops::BatchNormShapeOf(c.inputs[0]);
  const int64_t group = ops::GroupImages(c.inputs[0], c.inputs[3]);
  ForGroups(group, run.count, [&](const Group& g) {
    const int64_t at = g.first * shape.channels * shape.pixels;
    const int64_t of = g.index * shape.channels;
    kernels::BatchNormApply(shape, g.images, epsilon, c.In(0) + at, c.In(1),
                            c.In(2), c.In(3) + of, c.In(4) + of, c.Out(0) + at,
                            c.kernel);
  });
}

void RunBatchNormGrad(const BoundOp& c, const RunContext& run) {
  const float epsilon = c.As<ops::BatchNormGrad>().epsilon();
  const auto shape = ops::BatchNormShapeOf(c.inputs[0]);
  const int64_t group = ops::GroupImages(c.inputs[0], c.inputs[2]);
  float* grad_x = c.outputs.size() > 2 ? c.Out(2) : nullptr;
  TH_CHECK((c.carried & 1) == (c.carried >> 1));  // one flag for both sums
  ForGroups(group, run.count, [&](const Group& g) {
    const int64_t at = g.first * shape.channels * shape.pixels;
    const int64_t of = g.index * shape.channels;
    kernels::BatchNormGrad(shape, g.images, epsilon, c.In(0) + at, c.In(1),
                           c.In(2) + of, c.In(3) + of, c.In(4) + at,
                           grad_x == nullptr ? nullptr : grad_x + at, c.Out(0),
                           c.Out(1), c.kernel, g.index > 0 || c.Adds(0, run));
  });
}

void RunBatchNormTrack(const BoundOp& c, const RunContext& run) {
  const auto& op = c.As<ops::BatchNormTrack>();
  // From the committed statistics through all groups, microbatch after
  // microbatch; the update commits the end of it.
  const float* mean = c.Adds(0, run) ? c.Out(0) : c.In(2);
  const float* variance = c.Adds(1, run) ? c.Out(1) : c.In(3);
  const int64_t channels = c.inputs[2].shape[0];
  ForGroups(op.group_images(), run.count, [&](const Group& g) {
    const int64_t of = g.index * channels;
    kernels::BatchNormUpdateRunning(
        channels, g.images * op.positions(), op.momentum(), c.In(0) + of,
        c.In(1) + of, mean, variance, c.Out(0), c.Out(1), c.kernel);
    mean = c.Out(0);
    variance = c.Out(1);
  });
}

}  // namespace thimble::runtime
