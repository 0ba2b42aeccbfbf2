// SPDX-License-Identifier: Apache-2.0
#include "train/options.h"

#include <fmt/format.h>

#include <cmath>

#include "base/check.h"
#include "data/augment.h"
#include "planner/batch_statistics.h"

namespace thimble::train {
namespace {

Status CheckFolderOptions(const TrainOptions& options) {
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
  return Status::Ok();
}

}  // namespace

Augment AugmentOf(const TrainOptions& options, const Dataset& data) {
  return options.augment.value_or(data.usual_augment());
}

Status CheckData(const Plan& plan, const PhaseEnds& ends, const Dataset& data) {
  const Shape& images = plan.graph().value(ends.images).spec.shape;
  const int64_t classes = plan.graph().value(ends.logits).spec.shape[1];
  const ImageSpec& spec = data.spec();
  if (images[1] != spec.channels || images[2] != spec.height ||
      images[3] != spec.width || classes != spec.classes) {
    return Status::Usage(fmt::format(
        "the model takes images [{}, {}, {}] of {} classes, '{}' holds [{}, "
        "{}, {}] of {}",
        images[1], images[2], images[3], classes, data.name(), spec.channels,
        spec.height, spec.width, spec.classes));
  }
  return Status::Ok();
}

Status CheckOptions(const TrainOptions& options, const Plan& plan,
                    const Dataset& data) {
  if (options.steps < 0 || (options.steps == 0 && options.epochs < 1)) {
    return Status::Usage("nothing to do: give at least one epoch or step");
  }
  if (!(options.learning_rate > 0) || !std::isfinite(options.learning_rate)) {
    return Status::Usage(fmt::format(
        "the learning rate must be above 0, got {}", options.learning_rate));
  }
  TH_RETURN_IF_ERROR(CheckFolderOptions(options));
  if (options.warmup_steps < 0) {
    return Status::Usage("the warm-up cannot be shorter than 0 steps");
  }
  const ImageSpec& spec = data.spec();
  if (AugmentOf(options, data) == Augment::kCropFlip &&
      (spec.height < kMinCropSide || spec.width < kMinCropSide)) {
    return Status::Usage(fmt::format(
        "images of {} x {} are too small for crop-flip, whose sides must be at "
        "least {}; use TrainOptions::augment none",
        spec.height, spec.width, kMinCropSide));
  }
  const int64_t size = data.size(Split::kTrain);
  if (size < plan.batch() && !options.keep_last) {
    return Status::Usage(
        fmt::format("'{}' has {} training images, fewer than one batch of {}; "
                    "use a smaller Model::batch, or TrainOptions::keep_last",
                    data.name(), size, plan.batch()));
  }
  const int64_t last = size % plan.batch();
  if (!options.keep_last || last == 0) return Status::Ok();
  return planner::CheckLastBatch(plan, last);
}

}  // namespace thimble::train
