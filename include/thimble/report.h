// SPDX-License-Identifier: Apache-2.0
//
// A plan as text: a table for people, JSON for programs, a page with a picture.
// Pure functions but for the file that WritePlanHtml writes; safe from every
// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "thimble/plan.h"
#include "thimble/plan_search.h"
#include "thimble/status.h"

namespace thimble {

// One JSON object with stable keys, which docs/reference/json.md lists. Sizes
// are plain integers in bytes. The key `fits` compares with `budget`, if there
// is one.
std::string PlanJson(const Plan& plan, std::optional<uint64_t> budget);
// The same with the key `trade_offs`. `options` has a text for each trade-off,
// which says how the reader asks for it.
std::string PlanJson(const Plan& plan, std::optional<uint64_t> budget,
                     std::span<const TradeOff> trade_offs,
                     std::span<const std::string> options);

// A table: the arena, the bytes by role at its peak, and the largest buffers
// there.
std::string PlanTable(const Plan& plan);

// Writes one HTML file that loads nothing from elsewhere. It shows every buffer
// as a rectangle of addresses over time, the live bytes with their peak, the
// table by role, the largest buffers at the peak and the key figures of
// PlanJson. The folder of `path` must exist. Whatever happens, `path` holds
// either its old contents or all of the new ones.
Status WritePlanHtml(const Plan& plan, std::optional<uint64_t> budget,
                     const std::string& path);

}  // namespace thimble
