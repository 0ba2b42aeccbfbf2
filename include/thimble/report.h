// SPDX-License-Identifier: Apache-2.0
//
// Plans for people and for programs.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "thimble/plan.h"
#include "thimble/plan_search.h"
#include "thimble/status.h"

namespace thimble {

// One JSON object with stable keys (docs/architecture.md lists them); sizes are
// plain integers in bytes. `fits` compares with `budget`, if there is one.
std::string PlanJson(const Plan& plan, std::optional<uint64_t> budget);
// With the key `trade_offs` besides. `options` has a text for each, which says
// how the reader asks for it.
std::string PlanJson(const Plan& plan, std::optional<uint64_t> budget,
                     std::span<const TradeOff> trade_offs,
                     std::span<const std::string> options);

// A table by role, the peak, and what is live there.
std::string PlanTable(const Plan& plan);

// Writes one self-contained HTML file (it loads nothing from elsewhere): every
// buffer as a rectangle of addresses over time, the live bytes with their peak,
// the table by role, the largest buffers at the peak and the key figures of
// PlanJson. `path` holds the old contents or all of the new ones, whatever
// happens; its folder must exist.
Status WritePlanHtml(const Plan& plan, std::optional<uint64_t> budget,
                     const std::string& path);

}  // namespace thimble
