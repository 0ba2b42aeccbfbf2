// SPDX-License-Identifier: Apache-2.0
#include "ops/normalize.h"

#include <fmt/format.h>

#include "base/check.h"
#include "kernels/elementwise/elementwise.h"
#include "ops/bound_op.h"
#include "ops/storage.h"

namespace thimble::ops {

Result<std::vector<ValueSpec>> Normalize::Infer(
    std::span<const ValueSpec> inputs) const {
  const ValueSpec& x = inputs[0];
  TH_RETURN_IF_ERROR(CheckStored("images", x, DType::kU8));
  if (x.shape.rank() != 4) {
    return Status::Usage(
        fmt::format("needs images [N, C, H, W], got {}", x.shape.ToString()));
  }
  const auto channels = static_cast<size_t>(x.shape[1]);
  if (scale_.size() != channels || shift_.size() != channels) {
    return Status::Usage(fmt::format(
        "needs a scale and a shift for each channel of {}, got [{}] "
        "and [{}]",
        x.shape.ToString(), scale_.size(), shift_.size()));
  }
  return std::vector<ValueSpec>{{x.shape, DType::kF32, x.axis}};
}

void Normalize::Run(const BoundOp& c, const RunContext& run) const {
  const ValueSpec& x = c.in_spec(0);
  kernels::NormalizeU8(run.Rows(x), x.shape[1], x.shape.elements_from(2),
                       c.In(0).u8(), scale().data(), shift().data(), c.Out(0),
                       c.kernel);
}

}  // namespace thimble::ops
