// SPDX-License-Identifier: Apache-2.0
//
// Batches of labelled images: a data set, an order for each epoch, and what is
// done to training images.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/check.h"
#include "base/permutation.h"
#include "base/rng.h"
#include "data/augment.h"
#include "planner/batch_statistics.h"
#include "thimble/batches.h"
#include "thimble/text.h"
#include "train/image_facts.h"

namespace thimble {
namespace {

class ImageBatches final : public BatchSource {
 public:
  ImageBatches(const Dataset& data, const ImageBatchOptions& options)
      : data_(data),
        augment_(options.augment.value_or(data.usual_augment())),
        keep_last_(options.keep_last) {}

  const std::string& name() const override { return data_.name(); }

  Status Begin(const Plan& plan, uint64_t seed) override {
    seed_ = seed;
    batch_ = plan.batch();
    microbatch_ = plan.microbatch();
    TH_RETURN_IF_ERROR(FindFeeds(plan));
    return plan.options().training ? CheckTraining(plan) : Status::Ok();
  }

  int64_t StepsPerEpoch() const override {
    const int64_t size = data_.size(Split::kTrain);
    return keep_last_ ? PartsOf(size, batch_) : size / batch_;
  }

  Result<StepSize> BeginStep(int64_t epoch, int64_t step) override {
    const int64_t size = data_.size(Split::kTrain);
    epoch_ = static_cast<uint64_t>(epoch);
    order_.emplace(static_cast<uint64_t>(size),
                   RandomStream(seed_, epoch_, kOrderStream).Key());
    first_ = step * batch_;
    count_ = std::min(batch_, size - first_);
    return StepSize{.parts = PartsOf(count_, microbatch_), .counts = {count_}};
  }

  Result<AxisCounts> Fill(int64_t part,
                          std::span<const FeedBuffer> feeds) override {
    const int64_t done = part * microbatch_;
    const int64_t count = std::min(microbatch_, count_ - done);
    for (int64_t i = 0; i < count; ++i) {
      const auto record = static_cast<int64_t>(
          (*order_)(static_cast<uint64_t>(first_ + done + i)));
      const std::span<uint8_t> image = ImageOf(feeds, i);
      TH_RETURN_IF_ERROR(
          data_.Read(Split::kTrain, record, image, LabelOf(feeds, i)));
      if (augment_ == Augment::kNone) continue;
      ApplyCropFlip(DrawCropFlip(seed_, epoch_, record), data_.spec(), image);
    }
    return AxisCounts{count};
  }

  int64_t TestParts() const override {
    return PartsOf(data_.size(Split::kTest), microbatch_);
  }

  Result<AxisCounts> FillTest(int64_t part,
                              std::span<const FeedBuffer> feeds) override {
    const int64_t first = part * microbatch_;
    const int64_t count =
        std::min(microbatch_, data_.size(Split::kTest) - first);
    for (int64_t i = 0; i < count; ++i) {
      TH_RETURN_IF_ERROR(data_.Read(Split::kTest, first + i, ImageOf(feeds, i),
                                    LabelOf(feeds, i)));
    }
    return AxisCounts{count};
  }

  Result<std::map<std::string, std::string>> Settings() const override {
    TH_ASSIGN_OR_RETURN(std::string fingerprint, data_.Fingerprint());
    return std::map<std::string, std::string>{
        {"data", Printable(data_.name())},
        {"training images", std::to_string(data_.size(Split::kTrain))},
        {"data fingerprint", std::move(fingerprint)},
        {"augment", AugmentName(augment_)},
        {"keep-last", keep_last_ ? "yes" : "no"}};
  }

  std::vector<SourceFact> LogFacts() const override {
    return {{"data", data_.name()},
            {"train_images", data_.size(Split::kTrain)},
            {"test_images", data_.size(Split::kTest)},
            {"augment", AugmentName(augment_)}};
  }

  std::map<std::string, std::string> WeightsFacts() const override {
    return train::ImageFacts(data_.spec(), data_.mean(), data_.stddev());
  }

 private:
  static int64_t PartsOf(int64_t size, int64_t part) {
    return (size + part - 1) / part;
  }

  std::span<uint8_t> ImageOf(std::span<const FeedBuffer> feeds,
                             int64_t row) const {
    const auto bytes = static_cast<size_t>(data_.spec().bytes());
    return feeds[images_].As<uint8_t>().subspan(
        static_cast<size_t>(row) * bytes, bytes);
  }
  int32_t* LabelOf(std::span<const FeedBuffer> feeds, int64_t row) const {
    return &feeds[labels_].As<int32_t>()[static_cast<size_t>(row)];
  }

  Status FindFeeds(const Plan& plan) {
    const Ends& ends =
        plan.options().training ? plan.train_ends() : plan.evaluate_ends();
    const auto spec_of = [&plan](const End& end) {
      return plan.graph().value(end.value).spec;
    };
    const auto images = std::ranges::find(ends.feeds, "images", &End::name);
    const auto labels = std::ranges::find(ends.feeds, "labels", &End::name);
    const auto logits = std::ranges::find(ends.outputs, "logits", &End::name);
    if (ends.feeds.size() != 2 || images == ends.feeds.end() ||
        labels == ends.feeds.end() || logits == ends.outputs.end() ||
        !IsImageFeed(spec_of(*images)) || !IsLabelFeed(spec_of(*labels))) {
      return Status::Usage(fmt::format(
          "'{}' holds images and labels, for which {} has no feeds, or has "
          "others besides; train it with a source of its own",
          data_.name(), plan.model()));
    }
    images_ = static_cast<size_t>(images - ends.feeds.begin());
    labels_ = static_cast<size_t>(labels - ends.feeds.begin());
    return CheckSizes(spec_of(*images).shape, spec_of(*logits).shape[1]);
  }

  static bool IsImageFeed(const ValueSpec& spec) {
    return spec.shape.rank() == 4 && spec.storage == DType::kU8;
  }
  static bool IsLabelFeed(const ValueSpec& spec) {
    return spec.shape.rank() == 1 && spec.storage == DType::kI32;
  }

  Status CheckSizes(const Shape& images, int64_t classes) const {
    const ImageSpec& spec = data_.spec();
    if (images[1] == spec.channels && images[2] == spec.height &&
        images[3] == spec.width && classes == spec.classes) {
      return Status::Ok();
    }
    return Status::Usage(fmt::format(
        "the model takes images [{}, {}, {}] of {} classes, '{}' holds [{}, "
        "{}, {}] of {}",
        images[1], images[2], images[3], classes, data_.name(), spec.channels,
        spec.height, spec.width, spec.classes));
  }

  Status CheckTraining(const Plan& plan) const {
    TH_RETURN_IF_ERROR(CheckImageBatches(
        data_, {.augment = augment_, .keep_last = keep_last_}, batch_));
    const int64_t last = data_.size(Split::kTrain) % batch_;
    if (!keep_last_ || last == 0) return Status::Ok();
    return planner::CheckLastBatch(plan, last,
                                   "leave out ImageBatchOptions::keep_last");
  }

  const Dataset& data_;
  const Augment augment_;
  const bool keep_last_;
  uint64_t seed_ = 0;
  int64_t batch_ = 1;
  int64_t microbatch_ = 1;
  // Which feeds of the model they are.
  size_t images_ = 0;
  size_t labels_ = 0;
  // The current step.
  uint64_t epoch_ = 0;
  std::optional<KeyedPermutation> order_;  // of the epoch
  int64_t first_ = 0;                      // of its images, in that order
  int64_t count_ = 0;
};

}  // namespace

Status CheckImageBatches(const Dataset& data, const ImageBatchOptions& options,
                         int64_t batch) {
  const ImageSpec& spec = data.spec();
  if (options.augment.value_or(data.usual_augment()) == Augment::kCropFlip &&
      (spec.height < kMinCropSide || spec.width < kMinCropSide)) {
    return Status::Usage(fmt::format(
        "images of {} x {} are too small for crop-flip, whose sides must be "
        "at least {}; use ImageBatchOptions::augment = Augment::kNone",
        spec.height, spec.width, kMinCropSide));
  }
  const int64_t size = data.size(Split::kTrain);
  if (size >= batch || options.keep_last) return Status::Ok();
  return Status::Usage(
      fmt::format("'{}' has {}, fewer than one batch of {}; use a smaller "
                  "Model::batch, or ImageBatchOptions::keep_last",
                  data.name(), Counted(size, "training image"), batch));
}

std::unique_ptr<BatchSource> MakeImageBatches(
    const Dataset& data, const ImageBatchOptions& options) {
  return std::make_unique<ImageBatches>(data, options);
}

}  // namespace thimble
