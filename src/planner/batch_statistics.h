// SPDX-License-Identifier: Apache-2.0
//
// In training, a batch norm takes a mean and a variance per channel of what it
// sees at a time: a microbatch, or a ghost batch. Of a single value there is no
// variance: its output would be beta whatever comes in, and its gradient 0.
// That is refused. Pure functions, safe from every thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "thimble/plan.h"
#include "thimble/status.h"

namespace thimble::planner {

// The smallest microbatch with which every batch norm sees several values per
// channel: 1 or 2.
int64_t LeastMicrobatchOfStatistics(const Model& model);

// Fails, with the layer and what to change, where the options let a batch norm
// see one value per channel. REQUIRES: the options are possible otherwise.
Status CheckStatistics(const Model& model, const PlanOptions& options);

// The same for a step of `count`, fewer than the batch: its last microbatch or
// ghost batch may hold a single one. `remedy` is what the source of batches can
// do about it, for the message: "leave out …".
Status CheckLastBatch(const Plan& plan, int64_t count, std::string_view remedy);

}  // namespace thimble::planner
