// SPDX-License-Identifier: Apache-2.0
//
// Plans for people and for programs.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "thimble/plan.h"
#include "thimble/status.h"

namespace thimble {

// One JSON object with stable keys (docs/architecture.md lists them); sizes are
// plain integers in bytes. `fits` compares with `budget`, if there is one.
std::string PlanJson(const Plan& plan, std::optional<uint64_t> budget);
// With the key `trade_offs` besides.
std::string PlanJson(const Plan& plan, std::optional<uint64_t> budget,
                     std::span<const TradeOff> trade_offs);

// A table by role, the peak, what is live there, and the trade-offs as options
// of the command-line tool.
std::string PlanTable(const Plan& plan,
                      std::span<const TradeOff> trade_offs = {});

// Writes one self-contained HTML file (it loads nothing from elsewhere): every
// buffer as a rectangle of addresses over time, the live bytes with their peak,
// the table by role, the largest buffers at the peak and the key figures of
// PlanJson. `path` holds the old contents or all of the new ones, whatever
// happens; its folder must exist.
Status WritePlanHtml(const Plan& plan, std::optional<uint64_t> budget,
                     const std::string& path);

}  // namespace thimble
