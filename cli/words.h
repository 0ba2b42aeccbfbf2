// SPDX-License-Identifier: Apache-2.0
//
// What the library tells as data, or by the names of its fields, in the words
// of the command line: options to type.
#pragma once

#include <span>
#include <string>

#include "thimble/plan.h"
#include "thimble/plan_search.h"

namespace thimble::cli {

// What is needed, and what to type so that less is. What `precision_is_typed`
// is fixed: --allow has to stand in its place.
std::string RefusalText(const Refusal& refusal,
                        bool precision_is_typed = false);

// "--checkpoint auto --budget 20.5MB": what to type for a trade-off, in place
// of what was typed for `plan`.
std::string OptionsText(const Plan& plan, const TradeOff& trade);

// A heading and a line for each; empty without any.
std::string TradeOffLines(const Plan& plan,
                          std::span<const TradeOff> trade_offs);

// "91.10%" or "3.1416"; "not measured" where there is no number.
std::string MetricText(std::string_view name, double value, bool is_share);

// `message` with options in place of fields and commands in place of functions:
// "leave out PlanOptions::ghost_batch" is "leave out --ghost-batch". For every
// text of the library that is shown.
std::string WithOptions(std::string message);

}  // namespace thimble::cli
