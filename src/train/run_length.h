// SPDX-License-Identifier: Apache-2.0
//
// RunLength: how many steps a run has, and how they fall into epochs. Steps and
// epochs count from 0 here. A value, freely copied between threads.
#pragma once

#include <algorithm>
#include <cstdint>

namespace thimble::train {

struct RunLength {
  int64_t steps = 0;
  int64_t steps_per_epoch = 1;

  // A last partial one counted.
  int64_t epochs() const {
    return (steps + steps_per_epoch - 1) / steps_per_epoch;
  }
  int64_t EpochOf(int64_t step) const { return step / steps_per_epoch; }
  int64_t StepInEpoch(int64_t step) const { return step % steps_per_epoch; }
  // The steps of `epoch` are [FirstOf(epoch), EndOf(epoch)).
  int64_t FirstOf(int64_t epoch) const { return epoch * steps_per_epoch; }
  int64_t EndOf(int64_t epoch) const {
    return std::min(steps, FirstOf(epoch + 1));
  }
};

}  // namespace thimble::train
