// SPDX-License-Identifier: Apache-2.0
#include "train/options.h"

#include <fmt/format.h>

#include <cmath>

namespace thimble::train {

Status CheckOptions(const TrainOptions& options) {
  if (options.steps < 0 || (options.steps == 0 && options.epochs < 1)) {
    return Status::Usage("nothing to do: give at least one epoch or step");
  }
  if (!(options.learning_rate > 0) || !std::isfinite(options.learning_rate)) {
    return Status::Usage(fmt::format(
        "the learning rate must be above 0, got {}", options.learning_rate));
  }
  if (options.resume && options.out_dir.empty()) {
    return Status::Usage(
        "TrainOptions::resume needs TrainOptions::out_dir, the folder to go on "
        "from");
  }
  if (options.overwrite && options.out_dir.empty()) {
    return Status::Usage(
        "TrainOptions::overwrite needs TrainOptions::out_dir, the folder to "
        "start anew");
  }
  if (options.resume && options.overwrite) {
    return Status::Usage(
        "TrainOptions::resume goes on with a run and TrainOptions::overwrite "
        "starts it anew; give one of them");
  }
  if (options.warmup_steps < 0) {
    return Status::Usage("the warm-up cannot be shorter than 0 steps");
  }
  return Status::Ok();
}

}  // namespace thimble::train
