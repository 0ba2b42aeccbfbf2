// SPDX-License-Identifier: Apache-2.0
//
// Executor: runs the phases of a plan in an arena. All binding happens in the
// constructor; Run allocates nothing. One thread at a time may call Run.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "base/parallel.h"
#include "runtime/bind.h"
#include "thimble/plan.h"

namespace thimble::runtime {

class Executor {
 public:
  // `poison`: fill each buffer with 0xFF (NaNs) as soon as its life ends.
  // REQUIRES: plan, arena and pool outlive the executor.
  Executor(const Plan& plan, std::byte* arena, ThreadPool& pool, bool poison);

  void Run(Phase phase, const RunContext& run) const;

 private:
  struct Step {
    BoundOp run;                     // empty for a view
    std::vector<uint32_t> expiring;  // buffers whose life ends here
  };

  void Poison(const Step& step) const;

  const Plan& plan_;
  std::byte* arena_;
  bool poison_;
  std::array<std::vector<Step>, kPhases> phases_;
};

}  // namespace thimble::runtime
