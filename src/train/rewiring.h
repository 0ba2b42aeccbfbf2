// SPDX-License-Identifier: Apache-2.0
//
// When sparse weights are rewired, and how many blocks a rewiring should prune:
// pure functions of progress and density. The tables are those of dynamic
// sparse reparameterization and of the low-memory training report that uses it.
#pragma once

#include <cstdint>

#include "train/run_length.h"

namespace thimble::train {

// A period in steps holds for a part of the run; after 95 % of it, nothing is
// rewired. Periods are divided by `frequency` and rounded, and at least 1; they
// do not depend on the length of the run, only the parts do.
struct RewiringTimes {
  enum class Kind : uint8_t {
    kNever,
    kWrn,    // parts of 200 epochs: 25, 80, 140 and 190; whole epochs count
    kDct,    // parts of 50,000 steps: 6,250, 20,000, 35,000 and 47,500
    kEvery,  // `every` steps, to the end
  };

  Kind kind = Kind::kNever;
  double frequency = 1;  // kWrn, kDct
  int64_t every = 0;     // kEvery
};

// Whether weights are rewired after step `step`, which counts from 0. Never
// after step 0.
bool IsRewiringDue(const RewiringTimes& times, int64_t step,
                   const RunLength& run);

// What the report multiplies by, for each density of a network.
struct RewiringScale {
  double fraction = 1;   // how many blocks are pruned
  double frequency = 1;  // how often

  friend bool operator==(const RewiringScale&, const RewiringScale&) = default;
};

// That of the nearest density in the report's table, of two the smaller one. A
// wide residual network has 0.5, 0.4, 0.3, 0.2, 0.1 and 0.05, and so does the
// transformer with dynamic convolutions.
RewiringScale WrnRewiringScale(double density);
RewiringScale DctRewiringScale(double density);

// Blocks that a rewiring should prune, of all sparse weights together, kept or
// not: 20,000 of the 1,451,520 elements of WRN-28-2.
int64_t RewiringTarget(double fraction_scale, int64_t blocks);

}  // namespace thimble::train
