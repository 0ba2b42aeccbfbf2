// SPDX-License-Identifier: Apache-2.0
//
// Whether a run can be begun at all, as far as TrainOptions tell. Looked at
// before a file is touched. Pure, safe from every thread.
#pragma once

#include "thimble/status.h"
#include "thimble/trainer.h"

namespace thimble::train {

Status CheckOptions(const TrainOptions& options);

}  // namespace thimble::train
