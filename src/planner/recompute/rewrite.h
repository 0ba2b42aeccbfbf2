// SPDX-License-Identifier: Apache-2.0
//
// From a script to a program in which every op runs once.
#pragma once

#include "planner/program.h"
#include "planner/recompute/script.h"

namespace thimble::planner {

// The program with its microbatch phase in the order of the script. What runs
// again becomes an op of its own (OpDef::Repeat), whose results take the place
// of the earlier ones for all that comes after it. REQUIRES: each op of the
// phase stands in the script, forward ops perhaps several times.
Program Rewrite(const Program& program, const Script& script);

}  // namespace thimble::planner
