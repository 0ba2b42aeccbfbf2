// SPDX-License-Identifier: Apache-2.0
//
// The first and the last step of planning, for one microbatch size. In between,
// it is chosen what to recompute (choose.cc).
#pragma once

#include <cstdint>
#include <string>

#include "planner/program.h"
#include "planner/recompute/auto.h"
#include "thimble/plan.h"

namespace thimble::planner {

// Forward, backward, update and evaluation, nothing recomputed yet. REQUIRES:
// `microbatch` divides the batch of `whole`.
Program MakeProgram(const Model& whole, const PlanOptions& options,
                    int64_t microbatch);

// Lifetimes, offsets, and what is told of it all. REQUIRES: `lowered` was made
// of MakeProgram of the same arguments.
Plan AssemblePlan(const Model& whole, const PlanOptions& options,
                  int64_t microbatch, LoweredProgram lowered);

// What a step's passes are, where they are not simply the batch.
std::string PassesText(int64_t batch, int64_t microbatch, int64_t ghost_batch);

}  // namespace thimble::planner
