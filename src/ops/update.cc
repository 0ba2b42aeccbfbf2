// SPDX-License-Identifier: Apache-2.0
#include "ops/update.h"

#include <fmt/format.h>

#include <cstring>

#include "base/check.h"
#include "kernels/update/update.h"
#include "ops/bound_op.h"
#include "ops/storage.h"

namespace thimble::ops {
namespace {

Status CheckSameShapes(std::span<const ValueSpec> inputs) {
  for (const ValueSpec& other : inputs.subspan(1)) {
    if (other.shape != inputs[0].shape) {
      return Status::Usage(
          fmt::format("needs values of one shape, got {} and {}",
                      inputs[0].shape.ToString(), other.shape.ToString()));
    }
  }
  return Status::Ok();
}

}  // namespace

Result<std::vector<ValueSpec>> SgdUpdate::Infer(
    std::span<const ValueSpec> inputs) const {
  TH_RETURN_IF_ERROR(CheckF32(inputs, {"parameter", "gradient", "velocity"}));
  TH_RETURN_IF_ERROR(CheckSameShapes(inputs));
  return std::vector<ValueSpec>{};
}

Result<std::vector<ValueSpec>> Commit::Infer(
    std::span<const ValueSpec> inputs) const {
  // A copy of bytes: any type, but the same.
  TH_RETURN_IF_ERROR(CheckStored("next", inputs[kNext], inputs[kState].dtype));
  TH_RETURN_IF_ERROR(CheckSameShapes(inputs));
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
