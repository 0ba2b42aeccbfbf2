// SPDX-License-Identifier: Apache-2.0
#include "planner/placed_buffers.h"

#include <cstdint>
#include <utility>

#include "planner/lives.h"
#include "planner/place/place.h"
#include "planner/schedule.h"

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

}  // namespace thimble::planner
