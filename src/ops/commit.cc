// SPDX-License-Identifier: Apache-2.0
#include "ops/commit.h"

#include <fmt/format.h>

#include <cstring>

#include "base/check.h"
#include "ops/bound_op.h"
#include "ops/storage.h"

namespace thimble::ops {

Result<std::vector<ValueSpec>> Commit::Infer(
    std::span<const ValueSpec> inputs) const {
  // A copy of bytes: any type, but the same.
  TH_RETURN_IF_ERROR(
      CheckStored("next", inputs[kNext], inputs[kState].storage));
  if (inputs[kState].shape != inputs[kNext].shape) {
    return Status::Usage(fmt::format("needs values of one shape, got {} and {}",
                                     inputs[kState].shape.ToString(),
                                     inputs[kNext].shape.ToString()));
  }
  return std::vector<ValueSpec>{};
}

void Commit::Run(const BoundOp& c, const RunContext&) const {
  std::memcpy(c.Mutable(kState).data(), c.In(kNext).data(),
              c.in_spec(kState).bytes());
}

}  // namespace thimble::ops
