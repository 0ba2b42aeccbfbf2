// SPDX-License-Identifier: Apache-2.0
//
// What ops on sentences have in common: checks of what tells where sentences
// end, and what kernels get of it and of the masks of a text's rows. Pure
// functions.
#pragma once

#include <fmt/format.h>

#include "kernels/elementwise/elementwise.h"
#include "kernels/sentences.h"
#include "ops/bound_op.h"
#include "ops/storage.h"
#include "thimble/graph.h"
#include "thimble/status.h"

namespace thimble::ops {

// An error unless `spec` can hold the ends of sentences.
inline Status CheckEnds(std::string_view what, const ValueSpec& spec) {
  TH_RETURN_IF_ERROR(CheckStored(what, spec, DType::kI32));
  if (spec.shape.rank() == 1) return Status::Ok();
  return Status::Usage(fmt::format("{} must be [sentences], got {}", what,
                                   spec.shape.ToString()));
}

// Not only NaN is refused by the form of the comparison: 1 would divide by 0.
inline Status CheckRate(float rate) {
  if (rate >= 0.0f && rate < 1.0f) return Status::Ok();
  return Status::Usage(
      fmt::format("the dropout must be in [0, 1), got {}", rate));
}

// Of the sentences that a run uses.
inline kernels::Sentences SentencesOf(const BoundOp& c, size_t input,
                                      const RunContext& run) {
  return {run.Rows(c.in_spec(input)), c.In(input).i32()};
}

// Of rows like those of `rows`.
inline kernels::DropoutMask MaskOf(float rate, uint32_t stream,
                                   const ValueSpec& rows,
                                   const RunContext& run) {
  return {.seed = run.seed,
          .step = run.step,
          .stream = stream,
          .first = rows.axis.valid() ? run.PartOf(rows.axis).first : 0,
          .rate = rate};
}

}  // namespace thimble::ops
