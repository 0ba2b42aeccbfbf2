// SPDX-License-Identifier: Apache-2.0
#include "ops/accumulate.h"

#include "base/check.h"
#include "kernels/elementwise/elementwise.h"
#include "ops/bound_op.h"
#include "ops/gradient_out.h"
#include "ops/groups.h"
#include "ops/storage.h"

namespace thimble::ops {

Result<std::vector<ValueSpec>> Accumulate::Infer(
    std::span<const ValueSpec> inputs) const {
  TH_RETURN_IF_ERROR(CheckGradient("grad", inputs[0]));
  ValueSpec sum = inputs[0];
  if (group_images_ > 0) {
    sum.shape = {inputs[0].shape[1]};
  }
  return std::vector<ValueSpec>{sum};
}

void Accumulate::Run(const BoundOp& c, const RunContext& run) const {
  const int64_t elements = c.out_spec(0).shape.elements();
  if (InPieces(c.out_spec(0))) {
    const GradientOut sum(c, 0, run);
    kernels::HandOver(elements, c.In(0), sum, c.kernel);
    return;
  }
  const bool groups = group_images_ > 0;
  const int64_t images = groups ? run.PartOf(axis_).count : 1;
  ForGroups(groups ? group_images_ : 1, images, [&](const Group& g) {
    const kernels::ConstTensor part = c.In(0).From(g.index * elements);
    if (g.index == 0 && !c.Adds(0, run)) {
      kernels::Copy(elements, part, c.Out(0), c.kernel);
    } else {
      kernels::Add(elements, c.Out(0), part, c.Out(0), c.kernel);
    }
  });
}

}  // namespace thimble::ops
