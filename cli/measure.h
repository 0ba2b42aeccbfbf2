// SPDX-License-Identifier: Apache-2.0
//
// What training takes, measured from outside: `thimble train` in a process of
// its own, so that nothing else counts.
#pragma once

#include <cstdint>

#include "thimble/reproduce.h"
#include "thimble/status.h"

namespace thimble::cli {

// Trains `steps` steps on computed images and tests once.
Result<MeasuredRun> MeasureRun(const RunToMeasure& run, int64_t steps);

}  // namespace thimble::cli
