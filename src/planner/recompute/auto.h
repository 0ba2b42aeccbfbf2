// SPDX-License-Identifier: Apache-2.0
//
// `auto`: of all ways to recompute that the planner knows, the one that does
// the least work in an arena within the budget. They are the schedules on the
// chain's front (chain_front.h) and the named strategies, each measured as a
// whole and placed, and with options.two_pass each with the gradients at its
// peak in two passes (two_pass.h). One list serves all budgets, so a smaller
// budget never takes more bytes and never less work.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>

#include "planner/placed_buffers.h"
#include "planner/program.h"
#include "thimble/plan.h"

namespace thimble::planner {

// A program, and where its buffers lie.
struct LoweredProgram {
  Program program;
  PlacedBuffers placement;
};

// All ways to recompute that are known for one program; each is a number from
// 0, the least work first. What is asked about is placed and remembered, so
// this belongs to one thread at a time.
class Alternatives {
 public:
  // REQUIRES: `program` outlives this.
  Alternatives(const Program& program, const PlanOptions& options);
  Alternatives(Program&&, const PlanOptions&) = delete;
  ~Alternatives();

  // The least work in an arena of at most `budget` bytes.
  std::optional<size_t> LeastWorkWithin(uint64_t budget);
  // The smallest arena of those that are below `limit` bytes and run at most
  // `flops`.
  std::optional<size_t> FewestBytesBelow(
      uint64_t limit, int64_t flops = std::numeric_limits<int64_t>::max());

  size_t size() const;
  // The most that are live at one time: no arena is below it.
  size_t LiveBytesOf(size_t index) const;
  size_t ArenaOf(size_t index);
  // Of forward and backward of one microbatch.
  int64_t FlopsOf(size_t index) const;
  // The strategy that does the same under a name of its own, else "auto".
  const std::string& NameOf(size_t index) const;
  LoweredProgram Lower(size_t index);

 private:
  class Chooser;
  PlanOptions options_;
  std::unique_ptr<Chooser> chooser_;
};

}  // namespace thimble::planner
