// SPDX-License-Identifier: Apache-2.0
//
// Images as a source of batches: which records come in which step, and what is
// done to them.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "data/augment.h"
#include "thimble/batches.h"
#include "thimble/network.h"
#include "thimble/plan.h"
#include "train/test_images.h"

namespace thimble::train {
namespace {

using Image = std::vector<uint8_t>;

// Of `side` x `side` pixels, none of which is in two images, in three classes.
class Numbered final : public Dataset {
 public:
  Numbered(int64_t side, int64_t size, int64_t unreadable = -1)
      : Dataset({.name = "numbered",
                 .spec = {1, side, side, 3},
                 .train_size = size,
                 .test_size = 5,
                 .mean = {1},
                 .stddev = {2}}),
        unreadable_(unreadable) {}

 private:
  Status ReadRecord(Split split, int64_t index, std::span<uint8_t> image,
                    int32_t* label) const override {
    if (index == unreadable_) return Status::Failed("worn out");
    for (size_t i = 0; i < image.size(); ++i) {
      image[i] = static_cast<uint8_t>(i * 3 + 1);
    }
    image[0] = static_cast<uint8_t>(index + (split == Split::kTest ? 100 : 0));
    *label = static_cast<int32_t>(index % 3);
    return Status::Ok();
  }

  int64_t unreadable_;
};

Plan PlanFor(const ImageSpec& spec, int64_t batch, int64_t microbatch = 0) {
  Network net("net", batch);
  const ValueId x = net.Images({spec.channels, spec.height, spec.width});
  auto model = net.Finish(net.Linear("fc", net.Flatten(x), spec.classes));
  EXPECT_TRUE(model.ok()) << model.status().message();
  auto plan = MakePlan(*model, {.microbatch = microbatch});
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return *std::move(plan);
}

// Memory for the feeds of `rows` images, full of nines.
class Room {
 public:
  Room(const ImageSpec& spec, int64_t rows)
      : bytes_(static_cast<size_t>(spec.bytes())),
        image_spec_{{rows, spec.channels, spec.height, spec.width},
                    DType::kU8,
                    kBatchAxis},
        label_spec_{{rows}, DType::kI32, kBatchAxis},
        images(bytes_ * static_cast<size_t>(rows), 9),
        labels(static_cast<size_t>(rows), 9) {}

  std::vector<FeedBuffer> feeds() {
    return {
        {"images", &image_spec_, std::as_writable_bytes(std::span(images))},
        {"labels", &label_spec_, std::as_writable_bytes(std::span(labels))}};
  }
  Image ImageAt(int64_t row) const {
    const auto begin = images.begin() + row * static_cast<ptrdiff_t>(bytes_);
    return {begin, begin + static_cast<ptrdiff_t>(bytes_)};
  }

 private:
  size_t bytes_;
  ValueSpec image_spec_, label_spec_;

 public:
  Image images;
  std::vector<int32_t> labels;
};

// All images of a step, row by row.
std::vector<Image> StepOf(BatchSource& source, const ImageSpec& spec,
                          int64_t room, int64_t epoch, int64_t step) {
  std::vector<Image> images;
  const auto size = source.BeginStep(epoch, step);
  EXPECT_TRUE(size.ok());
  for (int64_t part = 0; part < size->parts; ++part) {
    Room memory(spec, room);
    const auto counts = source.Fill(part, memory.feeds());
    EXPECT_TRUE(counts.ok());
    for (int64_t row = 0; row < (*counts)[0]; ++row) {
      images.push_back(memory.ImageAt(row));
    }
  }
  EXPECT_EQ(static_cast<int64_t>(images.size()), size->counts[0]);
  return images;
}

// The records of an epoch in their order; Numbered has them in the first pixel.
std::vector<int> OrderOf(BatchSource& source, const ImageSpec& spec,
                         int64_t room, int64_t epoch) {
  std::vector<int> order;
  for (int64_t step = 0; step < source.StepsPerEpoch(); ++step) {
    for (const Image& image : StepOf(source, spec, room, epoch, step)) {
      order.push_back(image[0]);
    }
  }
  return order;
}

TEST(ImageBatches, AnEpochHasEveryImageOnceInAnOrderOfItsOwn) {
  const Numbered data(4, 11);
  const Plan plan = PlanFor(data.spec(), 4, 2);
  const auto source = MakeImageBatches(data, {.keep_last = true});
  ASSERT_TRUE(source->Begin(plan, 7).ok());
  ASSERT_EQ(source->StepsPerEpoch(), 3);
  const std::vector<int> first = OrderOf(*source, data.spec(), 2, 0);
  const std::vector<int> second = OrderOf(*source, data.spec(), 2, 1);
  EXPECT_NE(first, second);
  for (std::vector<int> order : {first, second}) {
    std::ranges::sort(order);
    for (int i = 0; i < 11; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
  }
  // The division into microbatches changes nothing, the seed everything.
  const Plan whole = PlanFor(data.spec(), 4);
  ASSERT_TRUE(source->Begin(whole, 7).ok());
  EXPECT_EQ(OrderOf(*source, data.spec(), 4, 0), first);
  ASSERT_TRUE(source->Begin(whole, 8).ok());
  EXPECT_NE(OrderOf(*source, data.spec(), 4, 0), first);
}

TEST(ImageBatches, ALastPartialBatchIsDroppedOrKept) {
  const Numbered data(4, 11);
  const Plan plan = PlanFor(data.spec(), 4, 2);
  const auto dropping = MakeImageBatches(data, {});
  ASSERT_TRUE(dropping->Begin(plan, 1).ok());
  EXPECT_EQ(dropping->StepsPerEpoch(), 2);
  const auto keeping = MakeImageBatches(data, {.keep_last = true});
  ASSERT_TRUE(keeping->Begin(plan, 1).ok());
  const auto last = keeping->BeginStep(0, 2);
  ASSERT_TRUE(last.ok());
  EXPECT_EQ(last->counts[0], 3);
  EXPECT_EQ(last->parts, 2);
  Room room(data.spec(), 2);
  ASSERT_EQ(*keeping->Fill(1, room.feeds()), AxisCounts{1});
  EXPECT_NE(room.ImageAt(0), Image(16, 9));
  // Rows behind the valid ones stay as they are.
  EXPECT_EQ(room.ImageAt(1), Image(16, 9));
  EXPECT_EQ(room.labels[1], 9);
}

TEST(ImageBatches, ARunMayBeginWithAnyStep) {
  const Numbered data(4, 12);
  const Plan plan = PlanFor(data.spec(), 4);
  const auto through = MakeImageBatches(data, {});
  ASSERT_TRUE(through->Begin(plan, 3).ok());
  for (int64_t epoch : {0, 1}) OrderOf(*through, data.spec(), 4, epoch);
  const auto late = MakeImageBatches(data, {});
  ASSERT_TRUE(late->Begin(plan, 3).ok());
  EXPECT_EQ(StepOf(*late, data.spec(), 4, 1, 2),
            StepOf(*through, data.spec(), 4, 1, 2));
}

TEST(ImageBatches, TheTestSplitComesInOrderAndUnchanged) {
  const Numbered data(9, 8);
  const Plan plan = PlanFor(data.spec(), 4, 2);
  const auto source = MakeImageBatches(data, {.augment = Augment::kCropFlip});
  ASSERT_TRUE(source->Begin(plan, 1).ok());
  ASSERT_EQ(source->TestParts(), 3);
  for (int64_t part = 0; part < 3; ++part) {
    Room room(data.spec(), 2);
    ASSERT_EQ(*source->FillTest(part, room.feeds()),
              AxisCounts{part < 2 ? 2 : 1});
    Image image(81);
    int32_t label = 0;
    ASSERT_TRUE(data.Read(Split::kTest, 2 * part, image, &label).ok());
    EXPECT_EQ(room.ImageAt(0), image);
    EXPECT_EQ(room.labels[0], label);
  }
}

TEST(ImageBatches, TrainingImagesAreCroppedAndMirroredByTheirEpoch) {
  const Numbered data(9, 8);
  const Plan plan = PlanFor(data.spec(), 4);
  const auto plain = MakeImageBatches(data, {});
  const auto source = MakeImageBatches(data, {.augment = Augment::kCropFlip});
  ASSERT_TRUE(plain->Begin(plan, 5).ok());
  ASSERT_TRUE(source->Begin(plan, 5).ok());
  for (const int64_t epoch : {0, 1}) {
    const auto before = StepOf(*plain, data.spec(), 4, epoch, 1);
    const auto after = StepOf(*source, data.spec(), 4, epoch, 1);
    for (size_t i = 0; i < before.size(); ++i) {
      Image image = before[i];
      ApplyCropFlip(DrawCropFlip(5, static_cast<uint64_t>(epoch), before[i][0]),
                    data.spec(), image);
      EXPECT_EQ(after[i], image);
    }
  }
}

TEST(ImageBatches, ARecordThatCannotBeReadEndsTheBatch) {
  const Numbered data(4, 4, /*unreadable=*/3);
  const Plan plan = PlanFor(data.spec(), 4);
  const auto source = MakeImageBatches(data, {});
  ASSERT_TRUE(source->Begin(plan, 1).ok());
  ASSERT_TRUE(source->BeginStep(0, 0).ok());
  Room room(data.spec(), 4);
  const auto train = source->Fill(0, room.feeds());
  ASSERT_FALSE(train.ok());
  EXPECT_EQ(train.status().message(), "worn out");
  EXPECT_FALSE(source->FillTest(0, room.feeds()).ok());
}

std::string RefusalOf(const Dataset& data, const Plan& plan,
                      const ImageBatchOptions& options) {
  const Status status = MakeImageBatches(data, options)->Begin(plan, 1);
  EXPECT_EQ(status.code(), StatusCode::kUsage);
  return status.message();
}

TEST(ImageBatches, RefuseModelsAndBatchesThatTheyCannotServe) {
  const Numbered data(4, 6);
  EXPECT_EQ(RefusalOf(data, PlanFor({1, 4, 4, 5}, 2), {}),
            "the model takes images [1, 4, 4] of 5 classes, 'numbered' holds "
            "[1, 4, 4] of 3");
  EXPECT_NE(RefusalOf(data, PlanFor({1, 5, 4, 3}, 2), {}).find("[1, 5, 4]"),
            std::string::npos);
  const Plan plan = PlanFor(data.spec(), 8);
  EXPECT_NE(RefusalOf(data, plan, {}).find("ImageBatchOptions::keep_last"),
            std::string::npos);
  EXPECT_TRUE(MakeImageBatches(data, {.keep_last = true})->Begin(plan, 1).ok());
  EXPECT_NE(
      RefusalOf(data, PlanFor(data.spec(), 2), {.augment = Augment::kCropFlip})
          .find("4 x 4 are too small"),
      std::string::npos);
}

TEST(ImageBatches, RefuseModelsWithOtherFeeds) {
  const Numbered data(4, 6);
  const Plan plan = PlanFor(data.spec(), 2);
  const auto refused = [&](const std::function<void(Ends&)>& change) {
    PlanParts parts = plan.parts();
    change(parts.train);
    const std::string message = RefusalOf(data, Plan(parts), {});
    EXPECT_NE(message.find("source of its own"), std::string::npos) << message;
  };
  refused([](Ends& ends) { ends.feeds[0].name = "tokens"; });
  refused([](Ends& ends) { ends.feeds[1].name = "next tokens"; });
  refused([](Ends& ends) { ends.feeds.push_back({"lengths", {}}); });
  refused([](Ends& ends) { ends.outputs.clear(); });
  refused(
      [](Ends& ends) { std::swap(ends.feeds[0].value, ends.feeds[1].value); });
  // Their order is the model's.
  PlanParts parts = plan.parts();
  std::swap(parts.train.feeds[0], parts.train.feeds[1]);
  const auto source = MakeImageBatches(data, {});
  ASSERT_TRUE(source->Begin(Plan(parts), 1).ok());
  ASSERT_TRUE(source->BeginStep(0, 0).ok());
  Room room(data.spec(), 2);
  std::vector<FeedBuffer> feeds = room.feeds();
  std::swap(feeds[0], feeds[1]);
  ASSERT_TRUE(source->Fill(0, feeds).ok());
  EXPECT_NE(room.ImageAt(0), Image(16, 9));
}

TEST(ImageBatches, TellWhatTheyAre) {
  const testing::FewImages data;
  const auto source = MakeImageBatches(data, {});
  const auto settings = source->Settings();
  ASSERT_TRUE(settings.ok());
  EXPECT_EQ(*settings, (std::map<std::string, std::string>{
                           {"augment", "none"},
                           {"data", "few"},
                           {"data fingerprint", *data.Fingerprint()},
                           {"keep-last", "no"},
                           {"training images", "8"}}));
  EXPECT_EQ(source->WeightsFacts(),
            (std::map<std::string, std::string>{{"channels", "1"},
                                                {"classes", "3"},
                                                {"height", "4"},
                                                {"mean", "100.5"},
                                                {"stddev", "50.25"},
                                                {"width", "4"}}));
}

}  // namespace
}  // namespace thimble::train
