// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <limits>

#include "base/check.h"
#include "base/files.h"
#include "thimble/trainer.h"
#include "train/learning_rate.h"
#include "train/log.h"
#include "train/loss_scale.h"
#include "train/rewirer.h"
#include "train/saving.h"

namespace thimble {

Status CheckTrainOptions(const TrainOptions& options) {
  if (options.steps < 0 || (options.steps == 0 && options.epochs < 1)) {
    return Status::Usage("nothing to do: give at least one epoch or step");
  }
  // Updates take it as a float, and feedback divides by it.
  using Float = std::numeric_limits<float>;
  if (!(options.learning_rate >= Float::min() &&
        options.learning_rate <= Float::max())) {
    return Status::Usage(
        fmt::format("the learning rate must be above 0, and from {:.2g} to "
                    "{:.2g}, got {:g}",
                    Float::min(), Float::max(), options.learning_rate));
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
  if (options.keep_epochs < 0) {
    return Status::Usage("fewer than 0 epochs cannot be kept");
  }
  if (options.keep_epochs > 0 && options.out_dir.empty()) {
    return Status::Usage(
        "TrainOptions::keep_epochs needs TrainOptions::out_dir, the folder to "
        "keep them in");
  }
  if (options.warmup_steps < 0) {
    return Status::Usage("the warm-up cannot be shorter than 0 steps");
  }
  TH_RETURN_IF_ERROR(train::Schedule::Parse(options.schedule).status());
  TH_RETURN_IF_ERROR(train::Rewirer::Check(options.rewiring));
  // The default rule alone depends on the precision.
  return train::LossScaler::Parse(options.loss_scale, {}).status();
}

Status CheckRunFiles(const TrainOptions& options) {
  TH_RETURN_IF_ERROR(train::CheckOutFolder(options));
  // Where the folder is still to be made, the log's may be too.
  const bool is_made = options.out_dir.empty() || IsFolder(options.out_dir);
  return is_made ? train::Log::Check(options.log_path) : Status::Ok();
}

}  // namespace thimble
