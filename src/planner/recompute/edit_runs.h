// SPDX-License-Identifier: Apache-2.0
//
// Changes to a script that keep it valid: when forward ops run again, and
// whether. They find what the dynamic programme over the chain (chain_front.h)
// cannot see: a stage's input that is made only when its backward has come to
// it, a value that is kept up to some op and made again for later ones.
#pragma once

#include <cstdint>

#include "planner/program.h"
#include "planner/recompute/script.h"
#include "planner/recompute/script_meter.h"

namespace thimble::planner {

// Each run again right before the first op that reads what it makes, and none
// that nothing reads.
Script DelayRuns(const Program& program, const ScriptMeter& meter,
                 const Script& script);

// Without a run again, its readers find what the run before it has made, which
// then lives on until they have read it: any of them can be left out, which
// saves work and takes bytes. This leaves out those that it can, the most work
// first, while at most `limit` bytes are live. REQUIRES: the script's own bytes
// are within the limit.
Script LeaveOutRuns(const Program& program, ScriptMeter& meter,
                    const Script& script, size_t limit);

}  // namespace thimble::planner
