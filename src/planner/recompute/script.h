// SPDX-License-Identifier: Apache-2.0
//
// A script is the microbatch phase as a list of ops in which forward ops may
// stand several times. A value is what the latest run of its op has made, and
// lives until the last op that reads that run's result: a script says nothing
// about dropping. ScriptWriter writes scripts stage by stage; what is not there
// any more, as far as the strategy remembers, is made again right before it is
// read, from the nearest values that are.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "planner/recompute/chain.h"

namespace thimble::planner {

using Script = std::vector<OpId>;

class ScriptWriter {
 public:
  // Both must outlive the writer.
  ScriptWriter(const Program& program, const Chain& chain);

  // Has what `stage` carries on, and `keep`. The first time all of its ops run,
  // later only those that are needed. Everything else that was made on the way
  // is forgotten.
  void Forward(size_t stage, std::span<const ValueId> keep);
  // The same, and nothing is forgotten.
  void ForwardAndKeep(size_t stage);
  // Runs stages [begin, end) and remembers what the last of them carries on and
  // its `keep`, not what is carried between them. REQUIRES: what stage
  // begin − 1 carries on is remembered.
  void Advance(size_t begin, size_t end, std::span<const ValueId> keep = {});
  void Backward(size_t stage);

  void Forget(ValueId v) { there_[v.i] = false; }
  bool HasRun(size_t stage) const { return has_run_[stage]; }

  Script Take() { return std::move(script_); }

 private:
  void Ensure(ValueId v);
  void Run(OpId op);
  bool IsThere(std::span<const ValueId> values) const;

  const Program& program_;
  const Chain& chain_;
  Script script_;
  std::vector<bool> there_;    // per value
  std::vector<bool> has_run_;  // per stage
  std::vector<ValueId> made_;  // since the last look
};

// Stages [begin, end), rebuilt as a whole when they are back-propagated, or in
// parts from the last to the first: then the values between the parts are
// rebuilt first.
struct Segment {
  size_t begin = 0, end = 0;
  std::vector<Segment> parts;
};

struct SegmentPlan {
  Segment root;  // from the first stage; stages behind its end keep everything
  // The last segment's values are kept by the first pass: nothing comes in
  // between. Off where a strategy is defined otherwise.
  bool keep_last = true;
};

Script WriteScript(const Program& program, const Chain& chain,
                   const SegmentPlan& plan);

}  // namespace thimble::planner
