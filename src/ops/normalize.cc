// SPDX-License-Identifier: Apache-2.0
#include "ops/normalize.h"

#include <fmt/format.h>

namespace thimble::ops {

Result<std::vector<ValueSpec>> Normalize::Infer(
    std::span<const ValueSpec> inputs) const {
  const ValueSpec& x = inputs[0];
  if (x.dtype != DType::kU8 || x.shape.rank() != 4) {
    return Status::Usage(fmt::format("needs u8 images [N, C, H, W], got {} {}",
                                     x.shape.ToString(), DTypeName(x.dtype)));
  }
  const auto channels = static_cast<size_t>(x.shape[1]);
  if (scale_.size() != channels || shift_.size() != channels) {
    return Status::Usage(fmt::format(
        "needs a scale and a shift for each channel of {}, got [{}] "
        "and [{}]",
        x.shape.ToString(), scale_.size(), shift_.size()));
  }
  return std::vector<ValueSpec>{{x.shape, DType::kF32, x.batched}};
}

}  // namespace thimble::ops
