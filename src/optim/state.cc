// SPDX-License-Identifier: Apache-2.0
#include "optim/state.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/check.h"
#include "ops/storage.h"

namespace thimble::optim {

std::span<const Storage> FloatStorages() { return StateStorages().first(3); }

std::span<const Storage> StateStorages() {
  static const std::array<Storage, 4> kStorages = {DType::kF32, DType::kF16,
                                                   DType::kBF16, U8InBlocks()};
  return kStorages;
}

Storage StateStorage(const ValueSpec& parameter,
                     const std::optional<Storage>& state) {
  if (parameter.shape.rank() <= 1) return DType::kF32;
  Storage storage = state.value_or(parameter.storage);
  storage.sparsity = parameter.storage.sparsity;
  return storage;
}

Status CheckUpdateInputs(std::span<const ValueSpec> inputs,
                         std::span<const std::string_view> names) {
  TH_CHECK(inputs.size() <= names.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Storage& storage = inputs[i].storage;
    ValueSpec values = inputs[i];
    // All or none are sparse, in the same way.
    if (storage.sparsity == inputs[0].storage.sparsity) {
      values.storage.sparsity.reset();
    }
    TH_RETURN_IF_ERROR(ops::CheckStoredAsOneOf(
        names[i], values, i == 0 ? FloatStorages() : StateStorages()));
    if (inputs[i].shape == inputs[0].shape) continue;
    return Status::Usage(fmt::format("needs values of one shape, got {} and {}",
                                     inputs[0].shape.ToString(),
                                     inputs[i].shape.ToString()));
  }
  return Status::Ok();
}

Status NeedsGradients(std::string_view why, std::string_view advice) {
  return Status::Usage(
      fmt::format("without gradients of weights (Precision::keeps_gradients = "
                  "false) {}; {}",
                  why, advice));
}

Status CheckState(const std::optional<Storage>& state) {
  const auto possible = StateStorages();
  if (!state || std::ranges::find(possible, *state) != possible.end()) {
    return Status::Ok();
  }
  std::string names;
  for (const Storage& storage : possible) {
    names += names.empty() ? "" : ", ";
    names += storage.ToString();
  }
  return Status::Usage(fmt::format(
      "optimizer state can be stored as {}, not {}", names, state->ToString()));
}

void AddSettings(Rounding rounding, const std::optional<Storage>& state,
                 std::map<std::string, std::string>& settings) {
  if (rounding != Rounding::kNearest) {
    settings["rounding"] = RoundingName(rounding);
  }
  if (state) settings["optimizer state"] = state->ToString();
}

}  // namespace thimble::optim
