// SPDX-License-Identifier: Apache-2.0
#include "ops/rewire.h"

#include <fmt/format.h>

#include <array>

#include "base/check.h"
#include "kernels/rewire/rewire.h"
#include "ops/bound_op.h"
#include "ops/storage.h"

namespace thimble::ops {
namespace {

constexpr size_t kMostStates = 4;

}  // namespace

Result<std::vector<ValueSpec>> Rewire::Infer(
    std::span<const ValueSpec> inputs) const {
  TH_CHECK(inputs.size() >= kState && inputs.size() <= kState + kMostStates);
  TH_RETURN_IF_ERROR(CheckStored("index", inputs[kIndex], DType::kU8));
  if (inputs[kIndex].bytes() != layout_.index_bytes()) {
    return Status::Usage(fmt::format("needs an index of {} bytes, got {}",
                                     layout_.index_bytes(),
                                     inputs[kIndex].bytes()));
  }
  TH_RETURN_IF_ERROR(CheckFloat("weights", inputs[kWeights]));
  for (const ValueSpec& state : inputs.subspan(kState)) {
    TH_RETURN_IF_ERROR(CheckGradient("state", state));
  }
  return std::vector<ValueSpec>{};
}

Workspace Rewire::Scratch(std::span<const ValueSpec>,
                          std::span<const ValueSpec>) const {
  return {.per_thread = 0, .shared = kernels::RewireScratchBytes(layout_)};
}

void Rewire::Run(const BoundOp& c, const RunContext& run) const {
  if (run.rewire == nullptr) return;
  std::array<kernels::Tensor, kMostStates> states = {
      kernels::Tensor::None(), kernels::Tensor::None(), kernels::Tensor::None(),
      kernels::Tensor::None()};
  const size_t count = c.inputs.size() - kState;
  for (size_t i = 0; i < count; ++i) states[i] = c.Mutable(kState + i);
  *run.rewired = kernels::Rewire(
      layout_, c.inputs[kIndex].data, c.Mutable(kWeights),
      std::span(states).first(count), *run.rewire, c.kernel.scratch);
}

}  // namespace thimble::ops
