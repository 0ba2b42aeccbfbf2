// SPDX-License-Identifier: Apache-2.0
#include "ops/update.h"

#include <fmt/format.h>

namespace thimble::ops {
namespace {

Status CheckSameShapes(std::span<const ValueSpec> inputs) {
  for (const ValueSpec& other : inputs.subspan(1)) {
    if (other.shape != inputs[0].shape || other.dtype != DType::kF32) {
      return Status::Usage(
          fmt::format("needs f32 values of one shape, got {} "
                      "and {}",
                      inputs[0].shape.ToString(), other.shape.ToString()));
    }
  }
  return Status::Ok();
}

}  // namespace

Result<std::vector<ValueSpec>> SgdUpdate::Infer(
    std::span<const ValueSpec> inputs) const {
  Status status = CheckSameShapes(inputs);
  if (!status.ok()) return status;
  return std::vector<ValueSpec>{};
}

Result<std::vector<ValueSpec>> Commit::Infer(
    std::span<const ValueSpec> inputs) const {
  Status status = CheckSameShapes(inputs);
  if (!status.ok()) return status;
  return std::vector<ValueSpec>{};
}

}  // namespace thimble::ops
