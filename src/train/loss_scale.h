// SPDX-License-Identifier: Apache-2.0
//
// LossScaler: by what the loss is multiplied, so that gradients stored in 16
// bits do not vanish. It is halved when a gradient has become infinite, whose
// step is then skipped, and doubled after long enough without that.
#pragma once

#include <cstdint>
#include <string_view>

#include "thimble/precision.h"
#include "thimble/status.h"

namespace thimble::train {

// What a checkpoint holds of it.
struct LossScaleState {
  double scale = 1;
  int64_t clean = 0;    // steps since the last one that was skipped
  int64_t skipped = 0;  // in all
  // Steps of this epoch without a loss: their forward pass was not finite.
  int64_t without_loss = 0;
};

class LossScaler {
 public:
  // By TrainOptions::loss_scale.
  static Result<LossScaler> Parse(std::string_view text,
                                  const Precision& precision);
  // The rule that Parse takes such a text for: "" is the default's.
  static std::string_view RuleOf(std::string_view text,
                                 const Precision& precision);

  // Without it nothing is scaled, nothing checked and no step skipped.
  bool is_on() const { return is_on_; }
  LossScaleState Begin() const { return {.scale = initial_}; }

  void Applied(LossScaleState* state) const;
  // Fails where the scale cannot go lower.
  Status Skipped(LossScaleState* state) const;

 private:
  bool is_on_ = false;
  double initial_ = 1;
  double least_ = 1;
  double most_ = 1;
  int64_t window_ = 0;  // clean steps until it is doubled; 0: never
  bool is_fixed_ = false;
};

}  // namespace thimble::train
