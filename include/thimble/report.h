// SPDX-License-Identifier: Apache-2.0
//
// Plans for people and for programs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "thimble/plan.h"

namespace thimble {

// One JSON object with stable keys (docs/architecture.md lists them); sizes are
// plain integers in bytes. `fits` compares with `budget`, if there is one.
std::string PlanJson(const Plan& plan, std::optional<uint64_t> budget);

// A table by role, the peak and what is live there.
std::string PlanTable(const Plan& plan);

}  // namespace thimble
