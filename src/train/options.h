// SPDX-License-Identifier: Apache-2.0
//
// Whether a run can be begun at all: what TrainOptions say, beside the plan and
// the data that they are given with. Looked at before a file is touched. Pure
// functions, safe from every thread.
#pragma once

#include "thimble/data.h"
#include "thimble/plan.h"
#include "thimble/status.h"
#include "thimble/trainer.h"

namespace thimble::train {

// Fails where images or classes of `data` are not those that `ends` of the plan
// take.
Status CheckData(const Plan& plan, const PhaseEnds& ends, const Dataset& data);

Status CheckOptions(const TrainOptions& options, const Plan& plan,
                    const Dataset& data);

// What the training images of a run are changed by.
Augment AugmentOf(const TrainOptions& options, const Dataset& data);

}  // namespace thimble::train
