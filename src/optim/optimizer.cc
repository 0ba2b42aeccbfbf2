// SPDX-License-Identifier: Apache-2.0
//
// What an optimizer that needs gradients says of doing without.
#include "thimble/optimizer.h"

#include <fmt/format.h>

#include "base/check.h"
#include "graph/op.h"
#include "optim/state.h"

namespace thimble {

Status Optimizer::CheckFold(bool) const {
  return optim::NeedsGradients(
      fmt::format("the step of {} is not possible", name()),
      "use SGD, or gradients in 8 bits (Precision::gradients = U8InBlocks())");
}

std::shared_ptr<const OpDef> Optimizer::FoldOp(const FoldPart&) const {
  TH_CHECK(false);  // CheckFold refuses
  return nullptr;
}

std::shared_ptr<const OpDef> Optimizer::ApplyOp(uint32_t) const {
  TH_CHECK(false);
  return nullptr;
}

}  // namespace thimble
