// SPDX-License-Identifier: Apache-2.0
//
// What of a session goes to disk, and how it comes back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/files.h"
#include "store/safetensors.h"
#include "thimble/plan.h"
#include "thimble/session.h"
#include "thimble/status.h"

namespace thimble::train {

// The values of a plan that go to disk, in the plan's order. A view: there may
// be thousands. Parameters may have different numbers of pieces of state.
class StateValues {
 public:
  enum class Part {
    kModel,     // parameters and running statistics: what a model is
    kTraining,  // and the optimizer's state: what training goes on from
  };
  StateValues(const Plan& plan, Part part);

  size_t size() const {
    return plan_->parameters().size() + plan_->statistics().size() + kept_;
  }
  ValueId operator[](size_t i) const;

 private:
  const Plan* plan_;
  size_t kept_ = 0;  // pieces of optimizer state, of all parameters
};

inline StateValues ModelState(const Plan& plan) {
  return {plan, StateValues::Part::kModel};
}
inline StateValues TrainingState(const Plan& plan) {
  return {plan, StateValues::Part::kTraining};
}

TensorInfo TensorInfoOf(const Value& value);

// Replaces the file `name` in `folder` by these values: temporary file, fsync,
// rename, so that the old file stays until the new one is whole. Sealed with a
// checksum of all its bytes.
Status SaveValues(const FileDescriptor& folder, const std::string& name,
                  Session& session, const StateValues& values,
                  const SafetensorsMetadata& metadata);

// Fails where the file lacks the value, or has it in another type or shape.
Status ReadTensorInto(const SafetensorsReader& reader, Session& session,
                      ValueId value);

// Fails, naming one, where a value holds an infinity or something that is no
// number.
Status CheckFinite(Session& session, const StateValues& values);

}  // namespace thimble::train
