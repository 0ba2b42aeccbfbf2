// SPDX-License-Identifier: Apache-2.0
//
// What a script takes, without making the program that it stands for: FLOPs as
// CountFlops and live bytes as LiveBytes counts them for Rewrite's result.
// Thousands of scripts are looked at where one is chosen. Not thread-safe: a
// measurement uses the meter's own memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "graph/op.h"
#include "planner/lives.h"
#include "planner/program.h"
#include "planner/recompute/script.h"
#include "thimble/plan.h"

namespace thimble::planner {

// One way to run an op of the microbatch phase: for the first time, or again.
struct OpRun {
  std::vector<ValueId> inputs, outputs;
  // Pairs of equal size, as indices into both.
  std::vector<InPlacePair> in_place;
  bool is_view = false;
  int64_t scratch = 0;  // bytes
  int64_t flops = 0;
};

struct ScriptCosts {
  int64_t flops = 0;  // of forward and backward
  size_t most_live = 0;
};

class ScriptMeter {
 public:
  // The program must outlive the meter, and nothing in it may run twice.
  ScriptMeter(const Program& program, const PlanOptions& options);

  ScriptCosts Measure(const Script& script);

  // REQUIRES for both: an op of the microbatch phase; a forward op for Again.
  const OpRun& First(OpId op) const { return first_[op.i]; }
  const OpRun& Again(OpId op) const { return again_[op.i]; }

  // Rounded up, as a buffer has them.
  int64_t BytesOf(ValueId v) const { return bytes_[v.i]; }
  // There before the first op and after the last one, whatever the script does:
  // state, and what several microbatches add to.
  bool IsLasting(ValueId v) const {
    return values_.state[v.i] || values_.carried[v.i];
  }
  // Read behind the microbatch phase.
  bool IsReadLater(ValueId v) const { return values_.read_later[v.i]; }
  // Bytes of all that is lasting.
  int64_t lasting_bytes() const { return lasting_bytes_; }
  // Most bytes that are live in the other phases.
  int64_t other_phases() const { return other_phases_; }

 private:
  // A value as one run of its op has made it, with all views of it.
  struct Instance {
    int64_t bytes;
    uint32_t first;  // when it first has bytes of its own
    uint32_t last;   // when it is read last
  };

  OpRun MakeRun(const Program& program, const PlanOptions& options, OpId id,
                bool again) const;
  void MeasureOtherPhases(const Program& program, const PlanOptions& options);

  void FindRuns(const Script& script);
  void FindInstances();
  void ShareBytes();
  size_t MostLive();

  LastingValues values_;
  std::vector<OpRun> first_, again_;  // per op
  std::vector<int64_t> bytes_;        // per value
  int64_t lasting_bytes_ = 0;
  int64_t other_phases_ = 0;

  // Of the measurement that is under way.
  std::vector<uint32_t> current_;  // per value: its latest instance
  std::vector<bool> has_run_;      // per op
  std::vector<const OpRun*> runs_;
  std::vector<Instance> instances_;
  std::vector<uint32_t> touched_;  // instances, per run inputs then outputs
  LiveBytesOverTime live_{0};
};

}  // namespace thimble::planner
