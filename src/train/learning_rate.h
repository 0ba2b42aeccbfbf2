// SPDX-License-Identifier: Apache-2.0
//
// Learning rates as a pure function of progress: nothing to store, nothing to
// restore.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "thimble/status.h"

namespace thimble::train {

class Schedule {
 public:
  enum class Kind { kConstant, kCosine, kInverseSqrt, kPiecewise };

  struct Drop {
    double at = 0;      // fraction of the run, in [0, 1]
    double factor = 1;  // of the base rate from there on
  };

  // "constant", "cosine", "inverse-sqrt", or "steps:0.5=0.2,0.75=0.04": from
  // half of the run on 0.2 of the base rate, from three quarters on 0.04.
  static Result<Schedule> Parse(const std::string& text);

  // The rate of step `step` of `steps`. The first `warmup` steps rise linearly
  // to the base rate; the rest follow the schedule over what remains. That of
  // inverse-sqrt is the base rate times √(warmup / n) in the n-th step, however
  // many there are, and rises from 1e-7, as translation models are trained.
  double Rate(double base, int64_t step, int64_t steps, int64_t warmup) const;

  Kind kind() const { return kind_; }

 private:
  Kind kind_ = Kind::kConstant;
  std::vector<Drop> drops_;  // by ascending `at`
};

}  // namespace thimble::train
