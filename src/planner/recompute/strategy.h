// SPDX-License-Identifier: Apache-2.0
//
// The names under which a user asks for recomputation, and what they mean.
#pragma once

#include <cstdint>
#include <string>

#include "thimble/status.h"

namespace thimble::planner {

struct Strategy {
  enum class Kind : uint8_t {
    kNone,       // everything that backward reads is kept
    kNoBn,       // outputs of batch norms and ReLUs are made again
    kEvery,      // every M-th cut is kept
    kResidual,   // the output of every M-th residual block is kept
    kSqrt,       // cuts by Chen et al.'s search over segment sizes
    kRecursive,  // K cuts, and in each part again
    kRevolve,    // binomial: M slots, or the fewest for two repetitions
    kAuto,       // what fits the budget with the least work
  };
  Kind kind = Kind::kNone;
  int64_t m = 0;      // 0 where the name has no number
  bool star = false;  // residual-M*: blocks of a segment one at a time
  std::string name = "none";

  bool operator==(const Strategy&) const = default;
};

// What PlanOptions::recompute takes, for help texts and messages.
std::string KnownStrategies();

// Usage where there is no such strategy; the message lists those that there
// are. `residual-Ms` is read as `residual-M*`, which shells expand.
Result<Strategy> ParseStrategy(const std::string& name);

}  // namespace thimble::planner
