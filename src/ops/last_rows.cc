// SPDX-License-Identifier: Apache-2.0
#include "ops/last_rows.h"

#include <fmt/format.h>

#include "kernels/last_rows.h"
#include "ops/bound_op.h"
#include "ops/storage.h"

namespace thimble::ops {

Result<std::vector<ValueSpec>> LastRows::Infer(
    std::span<const ValueSpec> inputs) const {
  const ValueSpec& x = inputs[kX];
  const ValueSpec& ends = inputs[kEnds];
  TH_RETURN_IF_ERROR(CheckFloat("x", x));
  TH_RETURN_IF_ERROR(CheckStored("ends", ends, DType::kI32));
  if (x.shape.rank() != 2 || ends.shape.rank() != 1) {
    return Status::Usage(fmt::format(
        "needs rows [T, C] and ends of sentences [S], got {} and {}",
        x.shape.ToString(), ends.shape.ToString()));
  }
  return std::vector<ValueSpec>{
      {{ends.shape[0], x.shape[1]}, DType::kF32, ends.axis}};
}

void LastRows::Run(const BoundOp& c, const RunContext& run) const {
  const kernels::Sentences sentences = {run.Rows(c.in_spec(kEnds)),
                                        c.In(kEnds).i32()};
  kernels::LastRows(sentences, c.in_spec(kX).shape[1], c.In(kX), c.Out(0));
}

}  // namespace thimble::ops
