// SPDX-License-Identifier: Apache-2.0
//
// What of a session goes to disk, and how it comes back.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/files.h"
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

// Replaces the file `name` in `folder` by these values: temporary file, fsync,
// rename, so that the old file stays until the new one is whole. Sealed with a
// checksum of all its bytes.
Status SaveValues(const FileDescriptor& folder, const std::string& name,
                  Session& session, std::span<const ValueId> values,
                  const SafetensorsMetadata& metadata);

// Fails where the file lacks the value, or has it in another type or shape.
Status ReadTensorInto(const SafetensorsReader& reader, Session& session,
                      ValueId value);

// Fails, naming one, where a value holds an infinity or something that is no
// number.
Status CheckFinite(Session& session, std::span<const ValueId> values);

}  // namespace thimble::train
