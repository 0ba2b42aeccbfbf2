// SPDX-License-Identifier: Apache-2.0
//
// From a schedule to buffers: which values share bytes (views and in-place
// results) and from when to when each buffer is needed.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/program.h"
#include "thimble/plan.h"

namespace thimble::planner {

struct BufferSet {
  std::vector<Buffer> buffers;  // offsets not yet set
  // Per value of the program's graph.
  std::vector<uint32_t> buffer_of;
  std::vector<bool> carried;     // see Plan::IsCarried
  std::vector<ValueId> pool_of;  // see Plan::PoolOf
};

// Of several inputs that an output may take the bytes of, those that have been
// there the longest, or the shortest time. As many bytes are live either way,
// but other placements exist: with the oldest, the others' lives lie within its
// own, and what is nested can be placed without a gap.
enum class Overwritten : uint8_t { kOldest, kNewest };

// Fills `scratch` of the scheduled ops as it makes their buffers.
// Lifetimes: state lives throughout; inputs from the start of their phase; loss
// and counts to the end of theirs, since the host reads them there (training's
// through the update; evaluation's outputs too); what is carried through
// several microbatches from the first op; everything else from the op that
// makes it to the op that reads it last. Without sharing, each lives through
// the whole of training or of evaluation.
BufferSet MakeBuffers(const Program& program, const PlanOptions& options,
                      std::vector<ScheduledOp>& schedule,
                      Overwritten overwritten = Overwritten::kOldest);

}  // namespace thimble::planner
