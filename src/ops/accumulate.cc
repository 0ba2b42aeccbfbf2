// SPDX-License-Identifier: Apache-2.0
#include "ops/accumulate.h"

namespace thimble::ops {

Result<std::vector<ValueSpec>> Accumulate::Infer(
    std::span<const ValueSpec> inputs) const {
  ValueSpec sum = inputs[0];
  if (group_images_ > 0) {
    sum.shape = {inputs[0].shape[1]};
  }
  return std::vector<ValueSpec>{sum};
}

}  // namespace thimble::ops
