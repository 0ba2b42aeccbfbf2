// SPDX-License-Identifier: Apache-2.0
#include "ops/commit.h"

#include <fmt/format.h>

#include <cstring>

#include "ops/bound_op.h"

namespace thimble::ops {

Result<std::vector<ValueSpec>> Commit::Infer(
    std::span<const ValueSpec> inputs) const {
  const ValueSpec& state = inputs[kState];
  const ValueSpec& next = inputs[kNext];
  if (state.shape != next.shape || state.dtype != next.dtype) {
    return Status::Usage(fmt::format(
        "needs two values of one shape and type, got {} {} and {} {}",
        state.shape.ToString(), DTypeName(state.dtype), next.shape.ToString(),
        DTypeName(next.dtype)));
  }
  return std::vector<ValueSpec>{};
}

void Commit::Run(const BoundOp& c, const RunContext&) const {
  std::memcpy(c.Mutable(kState).data(), c.In(kNext).data(),
              c.in_spec(kState).bytes());
}

}  // namespace thimble::ops
