// SPDX-License-Identifier: Apache-2.0
//
// `auto`: of all ways to recompute that the planner knows, the one that does
// the least work in an arena within the budget. They are the named strategies,
// the schedules on the chain's front (chain_front.h) and, for small programs,
// all that could be of use (exact_front.h); each is measured as a whole and
// placed. One list serves all budgets, so a smaller budget never takes more
// bytes and never less work.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "planner/checkpoint/script.h"
#include "planner/checkpoint/script_meter.h"
#include "planner/place/place.h"
#include "planner/program.h"
#include "thimble/plan.h"

namespace thimble::planner {

// A program, and where its buffers lie if that is known already: it takes most
// of the time of planning.
struct LoweredProgram {
  Program program;
  std::optional<Placement> placement;
};

// A way to recompute, and what is known of it.
struct Candidate {
  Script script;
  int64_t work = 0;  // FLOPs of one pass
  size_t most_live = 0;
  bool is_placed = false;
  Placement placement;
};

// The ways to recompute a program. Not thread-safe.
class Chooser {
 public:
  // Both must outlive the chooser.
  Chooser(const Program& program, const PlanOptions& options);

  // The least work within `budget`; where nothing fits, the fewest bytes. It is
  // placed, and valid until the chooser ends.
  const Candidate& Choose(uint64_t budget);
  LoweredProgram Lower(const Candidate& candidate) const;

  // The least work first; of equals, the fewest bytes.
  const std::vector<Candidate>& candidates() const { return candidates_; }

 private:
  void Add(Script script);
  void AddNamed();
  void AddFront();
  // Whether that is all there is.
  bool AddExact();
  void AddShorter();
  size_t ArenaOf(Candidate& candidate);
  const Candidate& Smallest();

  const Program& program_;
  const PlanOptions& options_;
  ScriptMeter meter_;
  size_t shortest_;  // ops of a script in which nothing runs again
  std::vector<Candidate> candidates_;
};

// For options.budget; without one, the least work.
LoweredProgram ChooseWithinBudget(const Program& program,
                                  const PlanOptions& options);

}  // namespace thimble::planner
