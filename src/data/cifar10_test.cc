// SPDX-License-Identifier: Apache-2.0
#include "data/cifar10.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/test_allocations.h"
#include "data/test_files.h"

namespace thimble {
namespace {

// Records in each file; the training split is their sum but for the last.
constexpr std::array<uint32_t, kCifar10Files> kCounts = {3, 1, 4, 2, 5, 6};
constexpr int64_t kTrain = 15;

class Cifar10 : public testing::Test {
 protected:
  void SetUp() override { WriteAll(folder_.path()); }

  // Record n of the training split is Cifar10Records(1, n); the test split
  // begins at 100.
  static void WriteAll(const std::string& folder) {
    ASSERT_TRUE(MakeDirs(folder).ok());
    uint32_t first = 0;
    for (size_t file = 0; file < kCifar10Files; ++file) {
      WriteTestFile(folder + "/" + std::string(kCifar10Names[file]),
                    Cifar10Records(kCounts[file],
                                   file < kCifar10TrainFiles ? first : 100));
      first += kCounts[file];
    }
  }

  std::string PathOf(size_t file) const {
    return folder_.File(kCifar10Names[file]);
  }

  // Expects that opening the folder fails, says `why` and names the file.
  void ExpectRefused(const std::string& why, size_t file) {
    const Status status = OpenDataset(folder_.path(), {}).status();
    EXPECT_EQ(status.code(), StatusCode::kFailed) << why;
    for (const std::string& text :
         {why, PathOf(file), std::string("FetchDataset(\"cifar10\")")}) {
      EXPECT_NE(status.message().find(text), std::string::npos)
          << status.message();
    }
  }

  TestFolder folder_;
};

TEST_F(Cifar10, ReadsEveryRecordAcrossFiles) {
  const auto data = OpenDataset(folder_.path(), {});
  ASSERT_TRUE(data.ok()) << data.status().message();
  EXPECT_EQ((*data)->name(), folder_.path());
  EXPECT_EQ((*data)->size(Split::kTrain), kTrain);
  EXPECT_EQ((*data)->size(Split::kTest), 6);
  EXPECT_EQ((*data)->spec().bytes(), 3072);
  EXPECT_EQ((*data)->spec().classes, 10);
  EXPECT_EQ((*data)->usual_augment(), Augment::kCropFlip);
  EXPECT_EQ(std::vector<float>((*data)->mean().begin(), (*data)->mean().end()),
            (std::vector<float>{125.3f, 123.0f, 113.9f}));
  EXPECT_EQ(
      std::vector<float>((*data)->stddev().begin(), (*data)->stddev().end()),
      (std::vector<float>{63.0f, 62.1f, 66.7f}));
  std::string image(3072, '\0');
  const std::span<uint8_t> bytes(reinterpret_cast<uint8_t*>(image.data()),
                                 image.size());
  for (const Split split : {Split::kTrain, Split::kTest}) {
    for (int64_t index = 0; index < (*data)->size(split); ++index) {
      int32_t label = -1;
      ASSERT_TRUE((*data)->Read(split, index, bytes, &label).ok());
      const std::string record = Cifar10Records(
          1, static_cast<uint32_t>(index + (split == Split::kTest ? 100 : 0)));
      EXPECT_EQ(label, record[0]) << index;
      EXPECT_TRUE(image == record.substr(1)) << index;
    }
  }
}

TEST_F(Cifar10, AllocatesNothingWhenItReads) {
  const auto data = OpenDataset(folder_.path(), {});
  ASSERT_TRUE(data.ok());
  std::array<uint8_t, kCifar10ImageBytes> image;
  int32_t label = -1;
  const int64_t before = AllocationCount();
  ASSERT_TRUE((*data)->Read(Split::kTrain, 11, image, &label).ok());
  EXPECT_EQ(AllocationCount() - before, 0);
}

TEST_F(Cifar10, IsFoundInTheFolderThatTheArchiveMakes) {
  const TestFolder outer;
  WriteAll(outer.File("cifar-10-batches-bin"));
  const auto data = OpenDataset(outer.path(), {});
  ASSERT_TRUE(data.ok()) << data.status().message();
  EXPECT_EQ((*data)->size(Split::kTrain), kTrain);
}

TEST_F(Cifar10, RefusesAFileThatIsNoWholeNumberOfRecords) {
  for (size_t file = 0; file < kCifar10Files; ++file) {
    const std::string good = ReadTestFile(PathOf(file));
    WriteTestFile(PathOf(file), good.substr(0, good.size() - 1));
    ExpectRefused("not a whole number of records", file);
    WriteTestFile(PathOf(file), good + "x");
    ExpectRefused("not a whole number of records", file);
    WriteTestFile(PathOf(file), "");
    ExpectRefused("its 0 bytes", file);
    WriteTestFile(PathOf(file), good);
  }
}

TEST_F(Cifar10, NamesAMissingFile) {
  for (const size_t file : {size_t{0}, size_t{3}, size_t{5}}) {
    const std::string good = ReadTestFile(PathOf(file));
    ASSERT_EQ(std::remove(PathOf(file).c_str()), 0);
    ExpectRefused("there is no file", file);
    WriteTestFile(PathOf(file), good);
  }
}

TEST_F(Cifar10, FindsABadLabelBeforeTraining) {
  std::string bytes = ReadTestFile(PathOf(4));
  bytes[4 * kCifar10RecordBytes] = 10;
  WriteTestFile(PathOf(4), bytes);
  ExpectRefused("label 10 of record 4 is out of range 0..9", 4);
}

TEST_F(Cifar10, ReportsAFileThatChangesWhileOpen) {
  const auto data = OpenDataset(folder_.path(), {});
  ASSERT_TRUE(data.ok());
  std::array<uint8_t, kCifar10ImageBytes> image;
  int32_t label = -1;
  ASSERT_EQ(truncate(PathOf(0).c_str(), 2 * kCifar10RecordBytes), 0);
  EXPECT_TRUE((*data)->Read(Split::kTrain, 1, image, &label).ok());
  const Status status = (*data)->Read(Split::kTrain, 2, image, &label);
  EXPECT_NE(status.message().find(PathOf(0)), std::string::npos);
  EXPECT_NE(status.message().find("cut short"), std::string::npos);
}

TEST_F(Cifar10, ByNameMustHaveThePublishedNumberOfRecords) {
  const Status status = OpenDataset("cifar10", {folder_.path(), ""}).status();
  EXPECT_NE(status.message().find("has 3 records, the published file 10000"),
            std::string::npos)
      << status.message();
}

TEST_F(Cifar10, ByNameIsLookedForInTheCacheAndSaysHowToGetIt) {
  const TestFolder cache;
  const DataOptions options{"", cache.path()};
  const Status status = OpenDataset("cifar10", options).status();
  EXPECT_NE(status.message().find(cache.File("cifar10")), std::string::npos);
  EXPECT_NE(status.message().find("FetchDataset(\"cifar10\")"),
            std::string::npos);
  EXPECT_EQ(*LocateDataset("cifar10", options), "");
  WriteAll(cache.File("cifar10"));
  EXPECT_EQ(*LocateDataset("cifar10", options), cache.File("cifar10"));
  // Found, and then refused for its size.
  EXPECT_NE(OpenDataset("cifar10", options)
                .status()
                .message()
                .find(cache.File("cifar10/data_batch_1.bin")),
            std::string::npos);
}

// Thousands of damaged files: each is refused with its name, or every record
// can be read.
TEST_F(Cifar10, SurvivesDamagedFiles) {
  const std::string good = ReadTestFile(PathOf(1));
  int refused = 0;
  std::array<uint8_t, kCifar10ImageBytes> image;
  for (uint64_t round = 0; round < 2000; ++round) {
    WriteTestFile(PathOf(1), Mutate(good, round, round % 2 == 0 ? 1 : 4000));
    const auto data = OpenDataset(folder_.path(), {});
    if (!data.ok()) {
      ++refused;
      ASSERT_NE(data.status().message().find(PathOf(1)), std::string::npos);
      continue;
    }
    for (int64_t index = 0; index < (*data)->size(Split::kTrain); ++index) {
      int32_t label = -1;
      ASSERT_TRUE((*data)->Read(Split::kTrain, index, image, &label).ok());
      ASSERT_TRUE(label >= 0 && label < kCifar10Classes);
    }
  }
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace thimble
