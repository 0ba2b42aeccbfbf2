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

// The values of a plan that go to disk, in an order of the plan's: of sparse
// weights the index and the pools, not the members. A view: there may be
// thousands. Parameters may have different numbers of pieces of state.
class StateValues {
 public:
  enum class Part {
    kModel,     // parameters and running statistics: what a model is
    kTraining,  // and the optimizer's state: what training goes on from
  };
  StateValues(const Plan& plan, Part part);

  size_t size() const {
    return parameters_ + pools_ + plan_->statistics().size() + state_ +
           pool_state_;
  }
  ValueId operator[](size_t i) const;

 private:
  ValueId StateAt(size_t i) const;

  const Plan* plan_;
  size_t parameters_;  // that are no members
  size_t pools_ = 0;   // the index and the weights
  // Pieces of optimizer state that are no members, and those of the pool.
  size_t state_ = 0, pool_state_ = 0;
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

// Whether the index that was read is one: what it says is trusted from then on.
// `path` is the file's.
Status CheckReadIndex(Session& session, const std::string& path);

// Fails, naming one, where a value holds an infinity or something that is no
// number.
Status CheckFinite(Session& session, const StateValues& values);

}  // namespace thimble::train
