// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <set>
#include <vector>

#include "base/test_allocations.h"
#include "thimble/data.h"

namespace thimble {
namespace {

// Records that hold their own split and index.
class Numbered : public Dataset {
 public:
  Numbered()
      : Dataset({.name = "numbered",
                 .spec = {1, 1, 4, 10},
                 .train_size = 5000,
                 .test_size = 70,
                 .mean = {3.0f},
                 .stddev = {2.0f},
                 .usual_augment = Augment::kCropFlip}) {}

 private:
  Status ReadRecord(Split split, int64_t index, std::span<uint8_t> image,
                    int32_t* label) const override {
    image[0] = split == Split::kTrain ? 1 : 2;
    image[1] = static_cast<uint8_t>(index >> 8);
    image[2] = static_cast<uint8_t>(index);
    *label = static_cast<int32_t>(index % 10);
    return Status::Ok();
  }
};

// Which training record of Numbered stands at `index`.
int RecordAt(const Dataset& data, Split split, int64_t index) {
  std::array<uint8_t, 4> image;
  int32_t label = -1;
  EXPECT_TRUE(data.Read(split, index, image, &label).ok());
  EXPECT_EQ(image[0], 1) << "a record of the real test split";
  const int record = image[1] * 256 + image[2];
  EXPECT_EQ(label, record % 10);
  return record;
}

TEST(HoldOut, CutsTheTrainingSplitInTwo) {
  const auto view = HoldOut(std::make_unique<Numbered>(), 500);
  ASSERT_TRUE(view.ok()) << view.status().message();
  EXPECT_EQ((*view)->size(Split::kTrain), 4500);
  EXPECT_EQ((*view)->size(Split::kTest), 500);
  EXPECT_EQ((*view)->name(), "numbered");
  EXPECT_EQ((*view)->mean()[0], 3.0f);
  EXPECT_EQ((*view)->stddev()[0], 2.0f);
  EXPECT_EQ((*view)->usual_augment(), Augment::kCropFlip);
  std::set<int> seen;
  for (const Split split : {Split::kTrain, Split::kTest}) {
    for (int64_t index = 0; index < (*view)->size(split); ++index) {
      seen.insert(RecordAt(**view, split, index));
    }
  }
  EXPECT_EQ(seen.size(), 5000u);
}

TEST(HoldOut, TakesTheSameRecordsAlwaysAndFromEverywhere) {
  const auto view = HoldOut(std::make_unique<Numbered>(), 500);
  ASSERT_TRUE(view.ok());
  // Written down: an accuracy on other records could not be compared.
  EXPECT_EQ(RecordAt(**view, Split::kTest, 0), 2885);
  EXPECT_EQ(RecordAt(**view, Split::kTest, 499), 2186);
  std::array<int, 5> fifths{};
  for (int64_t index = 0; index < 500; ++index) {
    ++fifths[static_cast<size_t>(RecordAt(**view, Split::kTest, index) / 1000)];
  }
  // 100 each expected, with a deviation of nine.
  for (const int count : fifths) EXPECT_NEAR(count, 100, 54);
}

// A larger number holds out all that a smaller one does.
TEST(HoldOut, LargerOnesContainSmallerOnes) {
  const auto small = HoldOut(std::make_unique<Numbered>(), 100);
  const auto large = HoldOut(std::make_unique<Numbered>(), 300);
  ASSERT_TRUE(small.ok() && large.ok());
  for (int64_t index = 0; index < 100; ++index) {
    EXPECT_EQ(RecordAt(**small, Split::kTest, index),
              RecordAt(**large, Split::kTest, index + 200));
  }
}

TEST(HoldOut, RefusesNoneAndAll) {
  for (const int64_t count : {int64_t{-1}, int64_t{0}, int64_t{5000}}) {
    const Status status = HoldOut(std::make_unique<Numbered>(), count).status();
    EXPECT_EQ(status.code(), StatusCode::kUsage);
    EXPECT_NE(status.message().find("5000 training images of 'numbered'"),
              std::string::npos)
        << status.message();
  }
  EXPECT_TRUE(HoldOut(std::make_unique<Numbered>(), 4999).ok());
}

TEST(HoldOut, AllocatesNothingWhenItReads) {
  const auto view = HoldOut(std::make_unique<Numbered>(), 500);
  ASSERT_TRUE(view.ok());
  std::array<uint8_t, 4> image;
  int32_t label = -1;
  const int64_t before = AllocationCount();
  ASSERT_TRUE((*view)->Read(Split::kTest, 3, image, &label).ok());
  EXPECT_EQ(AllocationCount() - before, 0);
}

}  // namespace
}  // namespace thimble
