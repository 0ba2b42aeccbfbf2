// SPDX-License-Identifier: Apache-2.0
//
// Less work for bytes that are free anyway. A script says when a forward op
// runs again; without that run, its readers find what the run before it has
// made, which then lives on until they have read it. So any run again can be
// left out: it saves work and takes bytes.
//
// This is what the dynamic programme over the chain (chain_front.h) cannot see:
// a value that is kept up to some op, and made again for later ones.
#pragma once

#include <cstdint>

#include "planner/checkpoint/script.h"
#include "planner/checkpoint/script_meter.h"
#include "planner/program.h"

namespace thimble::planner {

// The script without the runs that can be left out, the most work first, while
// at most `limit` bytes are live. REQUIRES: its own bytes are within the limit.
Script LeaveOutRuns(const Program& program, ScriptMeter& meter,
                    const Script& script, size_t limit);

}  // namespace thimble::planner
