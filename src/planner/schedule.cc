// SPDX-License-Identifier: Apache-2.0
#include "planner/schedule.h"

#include <optional>

#include "graph/op.h"

namespace thimble::planner {

std::vector<ScheduledOp> MakeSchedule(const Program& program) {
  std::vector<ScheduledOp> schedule;
  for (size_t phase = 0; phase < kPhases; ++phase) {
    for (OpId op : program.phases[phase]) {
      schedule.push_back(
          {op, static_cast<Phase>(phase), std::nullopt,
           program.origins[op.i].part == OpOrigin::Part::kRecompute});
    }
  }
  return schedule;
}

FlopCount CountFlops(const Graph& graph,
                     const std::vector<ScheduledOp>& schedule) {
  FlopCount count;
  for (const ScheduledOp& s : schedule) {
    if (s.phase != Phase::kMicrobatch) continue;
    const Op& op = graph.op(s.op);
    const std::vector<ValueSpec> inputs = graph.InputSpecs(op);
    const std::vector<ValueSpec> outputs = graph.OutputSpecs(op);
    const int64_t flops = op.def->Flops(inputs, outputs);
    count.step += flops;
    count.recompute +=
        s.recompute ? flops : op.def->RecomputeFlops(inputs, outputs);
  }
  return count;
}

}  // namespace thimble::planner
