// SPDX-License-Identifier: Apache-2.0
//
// What optimizers share: how state may be stored, and settings of rounding and
// storage. Pure functions.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "thimble/graph.h"
#include "thimble/rounding.h"
#include "thimble/status.h"
#include "thimble/storage.h"

namespace thimble::optim {

// f32, f16 and bf16: what parameters may be.
std::span<const Storage> FloatStorages();
// These and bytes in blocks: what gradients and state may be.
std::span<const Storage> StateStorages();

// How state of `parameter` is stored. Vectors are few, and what is divided by
// them or grows with them is sensitive: theirs is f32.
Storage StateStorage(const ValueSpec& parameter,
                     const std::optional<Storage>& state);

// An error where an update's inputs, parameter and gradient first, are stored
// as it does not take them or have different shapes. `names` are the inputs'.
Status CheckUpdateInputs(std::span<const ValueSpec> inputs,
                         std::span<const std::string_view> names);

Status CheckState(const std::optional<Storage>& state);

// The error of an optimizer that cannot do without gradients of weights.
Status NeedsGradients(std::string_view why, std::string_view advice);

// Adds what is not the default.
void AddSettings(Rounding rounding, const std::optional<Storage>& state,
                 std::map<std::string, std::string>& settings);
}  // namespace thimble::optim
