// SPDX-License-Identifier: Apache-2.0
#include "planner/assemble.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "planner/buffers.h"
#include "planner/fold_gradients.h"
#include "planner/fuse.h"
#include "planner/lives.h"
#include "planner/paper.h"
#include "planner/rebatch.h"
#include "planner/recompute/strategy.h"
#include "planner/schedule.h"

namespace thimble::planner {
namespace {

// A model for another batch; itself, where it is the same.
class Rebatched {
 public:
  // REQUIRES: `whole` outlives this.
  Rebatched(const Model& whole, int64_t batch) : model_(&whole) {
    if (batch == whole.batch()) return;
    other_ = Rebatch(whole, batch);
    model_ = &*other_;
  }
  Rebatched(const Rebatched&) = delete;
  Rebatched& operator=(const Rebatched&) = delete;
  const Model& operator*() const { return *model_; }

 private:
  const Model* model_;
  std::optional<Model> other_;
};

// Live bytes by role at the moment with most of them.
void FindPeak(PlanParts& parts) {
  LiveBytesOverTime over_time(parts.schedule.size());
  for (const Buffer& b : parts.buffers) over_time.Add(b.live, b.bytes);
  const std::vector<size_t> live = over_time.Sum();
  const auto most = std::max_element(live.begin(), live.end());
  parts.peak_time = static_cast<uint32_t>(most - live.begin());
  for (const Buffer& b : parts.buffers) {
    if (b.live.begin <= parts.peak_time && parts.peak_time < b.live.end) {
      parts.peak_bytes[static_cast<size_t>(b.role)] += b.bytes;
      parts.lower_bound += b.bytes;
    }
  }
  TH_CHECK(parts.lower_bound == *most);
}

}  // namespace

Program MakeProgram(const Model& whole, const PlanOptions& options,
                    int64_t microbatch) {
  const Rebatched model(whole, microbatch);
  const int64_t passes = whole.batch() / microbatch;
  Program program = options.fuse ? Differentiate(Fuse(*model), options, passes)
                                 : Differentiate(*model, options, passes);
  if (!options.training || options.precision.keeps_gradients) return program;
  return FoldGradients(program, *options.optimizer);
}

Plan AssemblePlan(const Model& whole, const PlanOptions& options,
                  int64_t microbatch, LoweredProgram lowered) {
  const Strategy strategy = *ParseStrategy(options.recompute);
  PlanParts parts;
  parts.model = whole.name;
  parts.options = options;
  parts.options.recompute = strategy.name;
  parts.batch = whole.batch();
  parts.microbatch = microbatch;
  parts.build_options = whole.build_options;
  parts.model_fingerprint = whole.fingerprint;
  const int64_t passes = parts.batch / parts.microbatch;
  Program& program = lowered.program;
  parts.schedule = MakeSchedule(program);
  BufferSet set = MakeBuffers(program, options, parts.schedule,
                              lowered.placement.overwritten);
  for (size_t i = 0; i < set.buffers.size(); ++i) {
    set.buffers[i].offset = lowered.placement.offsets[i];
  }
  parts.buffers = std::move(set.buffers);
  parts.buffer_of = std::move(set.buffer_of);
  parts.carried = std::move(set.carried);
  parts.pool_of = std::move(set.pool_of);
  parts.arena_bytes = lowered.placement.bytes;
  parts.train = program.train;
  parts.evaluate = program.evaluate;
  parts.parameters = std::move(program.parameters);
  parts.statistics = std::move(program.statistics);
  parts.sparse = std::move(program.sparse);
  parts.graph = std::move(program.graph);
  FindPeak(parts);
  const FlopCount flops = CountFlops(parts.graph, parts.schedule);
  parts.flops_step = flops.step * passes;
  parts.flops_recompute = flops.recompute * passes;
  parts.paper =
      PaperAccounting(*Rebatched(whole, microbatch), options, strategy);
  return Plan(std::move(parts));
}

}  // namespace thimble::planner
