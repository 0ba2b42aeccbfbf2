// SPDX-License-Identifier: Apache-2.0
//
// Rewirer: when a run rewires its sparse weights, and how (thimble/rewiring.h).
// What changes from rewiring to rewiring is a state of the run, which its
// checkpoint holds.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "thimble/plan.h"
#include "thimble/rewiring.h"
#include "thimble/status.h"
#include "thimble/trainer.h"
#include "train/rewiring.h"
#include "train/run_length.h"

namespace thimble::train {

struct RewiringState {
  double threshold = 0;  // of kDsr
  int64_t rewirings = 0;
};

class Rewirer {
 public:
  // By TrainOptions::rewiring. Fails where the options make no sense for the
  // plan.
  static Result<Rewirer> Make(const RewiringOptions& options, const Plan& plan);
  // The part of it that needs no plan.
  static Status Check(const RewiringOptions& options);

  // false: the pattern stays as it is.
  bool is_on() const { return is_on_; }
  RewiringState Begin() const { return {.threshold = kFirstThreshold}; }

  // What is done behind step `step`, which counts from 0, if anything.
  std::optional<RewireOptions> Due(int64_t step, const RunLength& length,
                                   const RewiringState& state) const;
  void Done(const RewireResult& result, RewiringState* state) const;

  // Name and value of all that decides bits; nothing where it is off. Each name
  // begins with this word.
  static constexpr std::string_view kSettings = "rewiring";
  std::map<std::string, std::string> Settings() const;

 private:
  static constexpr double kFirstThreshold = 1e-3;

  bool is_on_ = false;
  RewiringTimes times_;
  RewireOptions options_;
};

}  // namespace thimble::train
