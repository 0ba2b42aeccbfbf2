// SPDX-License-Identifier: Apache-2.0
//
// What of a session goes to disk, and how it comes back.
#pragma once

#include <vector>

#include "store/safetensors.h"
#include "thimble/plan.h"
#include "thimble/session.h"
#include "thimble/status.h"

namespace thimble::train {

// Parameters and running statistics: what a model is.
std::vector<ValueId> ModelState(const Plan& plan);

// And the optimizer's state: what training goes on from.
std::vector<ValueId> TrainingState(const Plan& plan);

TensorInfo TensorInfoOf(const Value& value);

// Fails where the file lacks the value, or has it in another type or shape.
Status ReadTensorInto(const SafetensorsReader& reader, Session& session,
                      ValueId value);

}  // namespace thimble::train
