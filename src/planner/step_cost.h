// SPDX-License-Identifier: Apache-2.0
//
// What a step costs, so that plans in different types can be compared. No
// measurement: a committed table per class of CPUs, so that the same options
// give the same plan everywhere.
#pragma once

#include <cstdint>

#include "planner/program.h"
#include "thimble/target_class.h"

namespace thimble::planner {

// Of forward and backward of one microbatch. FLOPs, each weighed by what it
// takes on CPUs of that class: hundredths of a FLOP in f32.
int64_t StepCost(const Program& program, TargetClass target);

}  // namespace thimble::planner
