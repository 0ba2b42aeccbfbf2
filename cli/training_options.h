// SPDX-License-Identifier: Apache-2.0
//
// The options that say how tensors are stored and by which optimizer weights
// are updated.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "options.h"
#include "thimble/optimizer.h"
#include "thimble/precision.h"

namespace thimble::cli {

void AddPrecisionFlags(CLI::App& app, PlanFlags& flags);
void AddOptimizerFlags(CLI::App& app, PlanFlags& flags);

// The type of that name; `otherwise` where it is empty. This and what follows
// require that flags were checked as they were read.
DType FloatType(const std::string& text, DType otherwise);

// `dtype` but for the roles that have an option of their own.
Precision PrecisionOf(const PlanFlags& flags, DType dtype);

std::shared_ptr<const Optimizer> MakeOptimizer(const PlanFlags& flags,
                                               const Precision& precision);

}  // namespace thimble::cli
