// SPDX-License-Identifier: Apache-2.0
#include "data/idx.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/test_sha256.h"
#include "data/test_files.h"

namespace thimble {
namespace {

class Idx : public testing::Test {
 protected:
  // Opens a split made of these contents.
  Result<IdxSplit> Open(std::string_view images, std::string_view labels) {
    WriteTestFile(images_path_, images);
    WriteTestFile(labels_path_, labels);
    return IdxSplit::Open(images_path_, labels_path_);
  }

  // Expects an error that says `why` and names the file.
  void ExpectRefused(std::string_view images, std::string_view labels,
                     const std::string& why, const std::string& path) {
    const auto split = Open(images, labels);
    ASSERT_FALSE(split.ok()) << why;
    EXPECT_EQ(split.status().code(), StatusCode::kFailed);
    const std::string& message = split.status().message();
    EXPECT_NE(message.find(why), std::string::npos) << message;
    EXPECT_NE(message.find(path), std::string::npos) << message;
  }

  TestFolder folder_;
  std::string images_path_ = folder_.File("images");
  std::string labels_path_ = folder_.File("labels");
};

std::string WithWord(std::string bytes, size_t word, uint32_t value) {
  std::string big_endian;
  AppendBigEndian(value, &big_endian);
  return bytes.replace(4 * word, 4, big_endian);
}

TEST_F(Idx, ReadsEachRecordOfAGoodFile) {
  const auto split = Open(IdxImages(7, 3, 5), IdxLabels(7, 4));
  ASSERT_TRUE(split.ok()) << split.status().message();
  EXPECT_EQ(split->count(), 7);
  EXPECT_EQ(split->height(), 3);
  EXPECT_EQ(split->width(), 5);
  std::vector<uint8_t> image(15);
  for (int64_t index = 0; index < 7; ++index) {
    int32_t label = -1;
    ASSERT_TRUE(split->Read(index, image, &label).ok());
    EXPECT_EQ(label, (index + 4) % 10);
    for (int64_t i = 0; i < 15; ++i) {
      EXPECT_EQ(image[static_cast<size_t>(i)], (15 * index + i) % 251);
    }
  }
  Sha256 labels;
  EXPECT_TRUE(split->CheckLabels(&labels).ok());
  EXPECT_EQ(Hex(labels.Final()), Sha256Hex(IdxLabels(7, 4).substr(8)));
}

TEST_F(Idx, MeasuresEveryPixelOnce) {
  // Larger than one piece of reading, and not a multiple of it.
  const std::string images = IdxImages(50, 20, 21);
  const auto split = Open(images, IdxLabels(50));
  ASSERT_TRUE(split.ok());
  PixelStatistics measured;
  ASSERT_TRUE(split->Measure(&measured).ok());
  double sum = 0;
  double squares = 0;
  const double count = 50 * 20 * 21;
  for (char c : images.substr(16)) {
    const double pixel = static_cast<uint8_t>(c);
    sum += pixel;
    squares += pixel * pixel;
  }
  const double mean = sum / count;
  EXPECT_FLOAT_EQ(measured.mean(), static_cast<float>(mean));
  EXPECT_FLOAT_EQ(measured.stddev(),
                  static_cast<float>(std::sqrt(squares / count - mean * mean)));
}

TEST(PixelStatistics, GivesConstantImagesDeviationOne) {
  PixelStatistics statistics;
  statistics.Add(std::vector<uint8_t>(100, 7));
  EXPECT_EQ(statistics.mean(), 7.0f);
  EXPECT_EQ(statistics.stddev(), 1.0f);
}

TEST_F(Idx, RefusesAWrongMagicNumber) {
  ExpectRefused(IdxLabels(100), IdxLabels(4), "starts with 0x00000801",
                images_path_);
  ExpectRefused(IdxImages(4, 2, 2), IdxImages(4, 2, 2),
                "not an IDX file of labels", labels_path_);
  ExpectRefused(Gzip(IdxImages(4, 2, 2)), IdxLabels(4), "starts with 0x1f8b",
                images_path_);
}

TEST_F(Idx, RefusesFilesShorterThanAHeader) {
  ExpectRefused("", IdxLabels(4), "it has 0 bytes", images_path_);
  ExpectRefused(IdxImages(4, 2, 2).substr(0, 15), IdxLabels(4),
                "it has 15 bytes", images_path_);
  ExpectRefused(IdxImages(4, 2, 2), IdxLabels(4).substr(0, 7), "it has 7 bytes",
                labels_path_);
}

TEST_F(Idx, RefusesALengthOtherThanThePromisedOne) {
  const std::string images = IdxImages(4, 2, 2);
  const std::string labels = IdxLabels(4);
  ExpectRefused(images.substr(0, 31), labels,
                "promises 32 bytes, but it has 31", images_path_);
  ExpectRefused(images + "x", labels, "too long", images_path_);
  ExpectRefused(images, labels.substr(0, 11), "cut short", labels_path_);
  ExpectRefused(images, labels + "x", "too long", labels_path_);
}

TEST_F(Idx, RefusesZeroAndAbsurdExtents) {
  const std::string images = IdxImages(4, 2, 2);
  const std::string labels = IdxLabels(4);
  ExpectRefused(WithWord(images, 1, 0), labels, "holds no images",
                images_path_);
  ExpectRefused(images, WithWord(labels, 1, 0), "holds no labels",
                labels_path_);
  ExpectRefused(WithWord(images, 2, 0), labels, "0 x 2 pixels", images_path_);
  ExpectRefused(WithWord(images, 3, 0x80000001), labels,
                "2 x 2147483649 pixels", images_path_);
  // 2^32-1 images of 4096 x 4096 are 2^56 bytes, 2^24 less: no wrap-around.
  ExpectRefused(
      WithWord(WithWord(WithWord(images, 1, 0xffffffff), 2, 4096), 3, 4096),
      labels, "promises 72057594021150736 bytes", images_path_);
}

TEST_F(Idx, RefusesImagesAndLabelsOfDifferentNumber) {
  ExpectRefused(IdxImages(4, 2, 2), IdxLabels(5), "4 images", labels_path_);
}

TEST_F(Idx, ReportsALabelOutOfRangeWhereverItIsRead) {
  std::string labels = IdxLabels(4);
  labels[8 + 2] = 10;
  const auto split = Open(IdxImages(4, 2, 2), labels);
  ASSERT_TRUE(split.ok());
  std::vector<uint8_t> image(4);
  int32_t label = -1;
  EXPECT_TRUE(split->Read(1, image, &label).ok());
  Sha256 digest;
  for (const Status& status :
       {split->Read(2, image, &label), split->CheckLabels(&digest)}) {
    EXPECT_NE(status.message().find(labels_path_ + ": label 10 of example 2"),
              std::string::npos)
        << status.message();
  }
}

TEST_F(Idx, ReportsAFileThatShrinksWhileOpen) {
  const auto split = Open(IdxImages(4, 2, 2), IdxLabels(4));
  ASSERT_TRUE(split.ok());
  ASSERT_EQ(truncate(images_path_.c_str(), 20), 0);
  std::vector<uint8_t> image(4);
  int32_t label = -1;
  EXPECT_TRUE(split->Read(0, image, &label).ok());
  EXPECT_NE(split->Read(3, image, &label).message().find("cut short"),
            std::string::npos);
}

// Thousands of damaged files: each is either refused with a message, or so
// little damaged that every record can be read or refused.
TEST_F(Idx, SurvivesDamagedFiles) {
  const std::string images = IdxImages(5, 3, 3);
  const std::string labels = IdxLabels(5);
  int refused = 0;
  for (uint64_t round = 0; round < 4000; ++round) {
    const bool damage_images = round % 3 != 0;
    const auto split = damage_images ? Open(Mutate(images, round, 16), labels)
                                     : Open(images, Mutate(labels, round, 13));
    if (!split.ok()) {
      ++refused;
      ASSERT_FALSE(split.status().message().empty());
      continue;
    }
    std::vector<uint8_t> image(
        static_cast<size_t>(split->height() * split->width()));
    for (int64_t index = 0; index < split->count(); ++index) {
      int32_t label = -1;
      if (split->Read(index, image, &label).ok()) {
        ASSERT_TRUE(label >= 0 && label < kIdxClasses);
      }
    }
  }
  EXPECT_GT(refused, 2000);
}

}  // namespace
}  // namespace thimble
