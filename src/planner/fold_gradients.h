// SPDX-License-Identifier: Apache-2.0
//
// A program without gradients of weights (Precision::keeps_gradients): ops that
// would make one fold it into the optimizer's state instead. Gradients of
// vectors stay. Pure functions.
#pragma once

#include "planner/program.h"
#include "thimble/graph.h"
#include "thimble/plan.h"
#include "thimble/status.h"

namespace thimble::planner {

// Whether gradients are such that ops must hand them over in pieces: in blocks,
// or not stored at all.
bool InPieces(const Precision& precision);

// An error where the model's gradients cannot be handed over in pieces, or its
// optimizer cannot do without them.
Status CheckGradients(const Model& model, const PlanOptions& options);

// An op that changes a parameter, and so reads it last, is moved behind the
// other ops of the microbatch phase that read it. REQUIRES: CheckGradients is
// content.
Program FoldGradients(const Program& program, const Optimizer& optimizer);

// An error where an op of the microbatch phase reads a parameter that an op
// before it has changed.
Status CheckReadsBeforeUpdates(const Plan& plan);

}  // namespace thimble::planner
