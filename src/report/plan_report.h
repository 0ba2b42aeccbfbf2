// SPDX-License-Identifier: Apache-2.0
//
// What several reports of a plan tell. Pure functions, safe from every thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "thimble/plan.h"

namespace thimble::report {

// The buffers that are live at the peak, largest first. They point into `plan`.
std::vector<const Buffer*> LiveAtPeak(const Plan& plan);

bool Fits(const Plan& plan, std::optional<uint64_t> budget);

// FLOPs of a step over those with nothing computed twice.
double FlopsRatio(const Plan& plan);

// "5.21 GFLOP per step, 81.4 MFLOP per image": forward and backward, of all and
// of one of what the plan's first axis counts.
std::string FlopsText(const Plan& plan);

}  // namespace thimble::report
