// SPDX-License-Identifier: Apache-2.0
//
// Two-pass input gradients, a pass over the program. A fused convolution's
// backward pass makes the gradient of bn(x) while x and the gradient of the
// convolution's output are there too: mostly the peak of a step. In two passes
// (ops/two_pass_grad.h) that gradient is never stored, and the gradient of x is
// written over x, for one more convolution. No bit of any result changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "planner/program.h"
#include "thimble/plan.h"

namespace thimble::planner {

// A norm-relu-conv-grad-input and the norm-grad that alone reads its gradient.
struct TwoPassPair {
  OpId grad_input, norm_grad;
};

// All that the program has, in its order.
std::vector<TwoPassPair> FindTwoPassPairs(const Program& program);

// The program with `pairs`, which are some of its own, in two passes. Ops keep
// their ids, and so scripts for one are scripts for the other; values do not.
Program InTwoPasses(const Program& program, std::span<const TwoPassPair> pairs);

// What of a program to do in two passes, and what it then takes.
struct TwoPassChoice {
  std::vector<TwoPassPair> pairs;
  size_t most_live = 0;  // bytes
  int64_t work = 0;      // FLOPs of forward and backward
};

// Choices with fewer and fewer bytes, a percent at a time: each adds to the one
// before what stands at its peak, as long as that lowers the peak, and so does
// no work for nothing. None where the peak stands elsewhere.
std::vector<TwoPassChoice> FindTwoPassChoices(const Program& program,
                                              const PlanOptions& options);

// The fewest bytes that two passes alone can do with.
Program WithLowestTwoPassPeak(Program program, const PlanOptions& options);

}  // namespace thimble::planner
