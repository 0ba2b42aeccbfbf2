// SPDX-License-Identifier: Apache-2.0
//
// Executor: runs the phases of a plan in an arena. What an op needs is read off
// the plan as it runs. Only its scratch is found before, because that would
// allocate: four bytes per op, which are not part of the arena. Run allocates
// nothing. One thread at a time may call Run.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/parallel.h"
#include "base/workspace.h"
#include "ops/bound_op.h"
#include "thimble/plan.h"
#include "thimble/session.h"

namespace thimble::runtime {

class Executor {
 public:
  // REQUIRES: plan, arena and pool outlive the executor, and the watcher does.
  Executor(const Plan& plan, std::byte* arena, ThreadPool& pool,
           const SessionOptions& options);

  // Whether all gradients of parameters that were made are finite, and those
  // before were; true where the run does not ask for that. Where gradients of
  // weights are not kept, those of activations are looked at as well, and once
  // one is not finite no op of the microbatch phase changes state any more.
  bool Run(Phase phase, const RunContext& run) const {
    return RunFrom(0, phase, run);
  }
  // The same without its ops before `time`.
  bool RunFrom(uint32_t time, Phase phase, const RunContext& run) const;

 private:
  const Op& OpAt(uint32_t time) const;
  // `pattern` is set where the value is sparse.
  BoundValue Bind(ValueId v, Pattern& pattern) const;
  bool RunOp(uint32_t time, const RunContext& run) const;
  bool GradientsAreFinite(const Op& op, const BoundOp& bound,
                          const RunContext& run) const;
  void Poison(uint32_t time) const;

  const Plan& plan_;
  std::byte* arena_;
  ThreadPool& pool_;
  OpWatcher* watcher_;
  std::array<Interval, kPhases> phases_{};  // of time
  std::vector<Workspace> workspaces_;       // the different ones
  std::vector<uint32_t> workspace_of_;      // per moment, an index into them
  // Buffers whose life ends at each moment; empty without poison.
  std::vector<std::vector<uint32_t>> expiring_;
};

}  // namespace thimble::runtime
