// SPDX-License-Identifier: Apache-2.0
//
// The options that make weights sparse.
#pragma once

#include <CLI/CLI.hpp>

#include "options.h"
#include "thimble/rewiring.h"
#include "thimble/sparse_weights.h"

namespace thimble::cli {

void AddSparseFlags(CLI::App& app, PlanFlags& flags);

// Of train alone.
void AddRewiringFlags(CLI::App& app, RewiringOptions& options);

// Whether the budget may choose how many weights are stored.
bool MayBecomeSparse(const PlanFlags& flags);

// What would have no effect, or cannot be, is refused: throws
// CLI::ValidationError.
void CheckSparseEffects(const CLI::App& app, const PlanFlags& flags);

}  // namespace thimble::cli
