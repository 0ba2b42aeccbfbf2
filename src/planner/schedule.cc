// SPDX-License-Identifier: Apache-2.0
#include "planner/schedule.h"

#include <cstdint>
#include <utility>

#include "graph/op.h"
#include "planner/lives.h"
#include "planner/place/place.h"

namespace thimble::planner {
namespace {

// A second placement of more buffers takes longer than it is worth.
constexpr size_t kMostBuffersTwice = 1'000;

std::vector<BufferRequest> RequestsOf(
    const Program& program, const PlanOptions& options,
    Overwritten overwritten = Overwritten::kOldest) {
  std::vector<ScheduledOp> schedule = MakeSchedule(program);
  std::vector<BufferRequest> requests;
  for (const Buffer& b :
       MakeBuffers(program, options, schedule, overwritten).buffers) {
    requests.push_back({b.live, b.bytes});
  }
  return requests;
}

}  // namespace

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

std::vector<size_t> LiveBytes(const Program& program,
                              const PlanOptions& options) {
  size_t times = 0;
  for (const std::vector<OpId>& phase : program.phases) times += phase.size();
  LiveBytesOverTime live(times);
  for (const BufferRequest& r : RequestsOf(program, options)) {
    live.Add(r.live, r.bytes);
  }
  return live.Sum();
}

size_t MostLiveBytes(const Program& program, const PlanOptions& options) {
  return LowerBound(RequestsOf(program, options));
}

PlacedBuffers PlaceBuffers(const Program& program, const PlanOptions& options) {
  PlacedBuffers best;
  best.bytes = SIZE_MAX;
  for (Overwritten choice : {Overwritten::kOldest, Overwritten::kNewest}) {
    const std::vector<BufferRequest> requests =
        RequestsOf(program, options, choice);
    Placement placement = PlacePortfolio(requests);
    if (placement.bytes < best.bytes) {
      best = {std::move(placement.offsets), placement.bytes, choice};
    }
    if (best.bytes == LowerBound(requests) ||
        requests.size() > kMostBuffersTwice) {
      break;
    }
  }
  return best;
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
