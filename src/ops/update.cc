// SPDX-License-Identifier: Apache-2.0
#include "ops/update.h"

#include <fmt/format.h>

#include <cstring>

#include "kernels/update/update.h"
#include "ops/bound_op.h"

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

void SgdUpdate::Run(const BoundOp& c, const RunContext& run) const {
  const SgdAttributes& a = attributes_;
  const kernels::Tensor velocity = c.inputs.size() > kVelocity
                                       ? c.Mutable(kVelocity)
                                       : kernels::Tensor::None();
  kernels::SgdUpdate(
      c.in_spec(kParameter).shape.elements(),
      {run.learning_rate, a.momentum, a.weight_decay, a.nesterov},
      c.Mutable(kParameter), c.In(kGradient), velocity, c.kernel);
}

void Commit::Run(const BoundOp& c, const RunContext&) const {
  std::memcpy(c.Mutable(kState).data(), c.In(kNext).data(),
              c.in_spec(kState).bytes());
}

}  // namespace thimble::ops
