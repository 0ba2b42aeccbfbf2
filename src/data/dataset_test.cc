// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/files.h"
#include "base/sha256.h"
#include "base/test_allocations.h"
#include "data/test_files.h"
#include "thimble/data.h"

namespace thimble {
namespace {

bool Mentions(const Status& status, std::string_view text) {
  return status.message().find(text) != std::string::npos;
}

class IdxFolder : public testing::Test {
 protected:
  IdxFolder() {
    options_.cache_dir = folder_.File("cache");
    EXPECT_TRUE(MakeDirs(data_).ok());
  }

  void WriteAll(bool compressed) {
    Put("train-images-idx3-ubyte", IdxImages(30, 4, 6), compressed);
    Put("train-labels-idx1-ubyte", IdxLabels(30), compressed);
    Put("t10k-images-idx3-ubyte", IdxImages(12, 4, 6), compressed);
    Put("t10k-labels-idx1-ubyte", IdxLabels(12, 5), compressed);
  }

  void Put(const std::string& name, const std::string& bytes, bool compressed) {
    const std::string path = data_ + "/" + name + (compressed ? ".gz" : "");
    WriteTestFile(path, compressed ? Gzip(bytes) : bytes);
  }

  // The path of the one cached file of this name; empty if there is none.
  std::string Cached(const std::string& name) {
    std::string found;
    const std::string command =
        "find '" + options_.cache_dir + "' -name " + name + " 2>/dev/null";
    std::FILE* pipe = popen(command.c_str(), "r");
    for (int c; (c = std::fgetc(pipe)) != EOF && c != '\n';) {
      found += static_cast<char>(c);
    }
    pclose(pipe);
    return found;
  }

  TestFolder folder_;
  std::string data_ = folder_.File("data");
  DataOptions options_;
};

TEST_F(IdxFolder, OpensPlainFilesWithoutACache) {
  WriteAll(false);
  const auto data = OpenDataset(data_, options_);
  ASSERT_TRUE(data.ok()) << data.status().message();
  EXPECT_EQ((*data)->name(), data_);
  EXPECT_EQ((*data)->size(Split::kTrain), 30);
  EXPECT_EQ((*data)->size(Split::kTest), 12);
  EXPECT_EQ((*data)->spec().bytes(), 24);
  EXPECT_EQ((*data)->spec().classes, 10);
  EXPECT_EQ((*data)->mean().size(), 1u);
  EXPECT_EQ((*data)->stddev().size(), 1u);
  std::vector<uint8_t> image(24);
  int32_t label = -1;
  ASSERT_TRUE((*data)->Read(Split::kTest, 3, image, &label).ok());
  EXPECT_EQ(label, 8);
  EXPECT_EQ(image[5], 3 * 24 + 5);
  EXPECT_FALSE(IsFolder(options_.cache_dir));
}

TEST_F(IdxFolder, UnpacksOnceAndReusesTheCache) {
  WriteAll(true);
  ASSERT_TRUE(OpenDataset(data_, options_).ok());
  const std::string cached = Cached("train-images-idx3-ubyte");
  ASSERT_FALSE(cached.empty());
  EXPECT_EQ(ReadTestFile(cached), IdxImages(30, 4, 6));
  struct stat before;
  ASSERT_EQ(stat(cached.c_str(), &before), 0);
  ASSERT_TRUE(OpenDataset(data_ + "/../data", options_).ok());
  struct stat after;
  ASSERT_EQ(stat(cached.c_str(), &after), 0);
  EXPECT_EQ(before.st_ino, after.st_ino);
  EXPECT_EQ(folder_.CountFiles(), 8);
}

TEST_F(IdxFolder, UnpacksAgainWhenTheCacheIsDamaged) {
  WriteAll(true);
  ASSERT_TRUE(OpenDataset(data_, options_).ok());
  const std::string cached = Cached("train-images-idx3-ubyte");
  WriteTestFile(cached, IdxImages(30, 4, 6).substr(0, 50));
  ASSERT_TRUE(OpenDataset(data_, options_).ok());
  EXPECT_EQ(ReadTestFile(cached), IdxImages(30, 4, 6));
}

TEST_F(IdxFolder, UnpacksAgainWhenASourceChanges) {
  WriteAll(true);
  ASSERT_TRUE(OpenDataset(data_, options_).ok());
  Put("t10k-images-idx3-ubyte", IdxImages(11, 4, 6), true);
  Put("t10k-labels-idx1-ubyte", IdxLabels(11), true);
  const auto data = OpenDataset(data_, options_);
  ASSERT_TRUE(data.ok()) << data.status().message();
  EXPECT_EQ((*data)->size(Split::kTest), 11);
}

TEST_F(IdxFolder, LeavesNoCachedFileOfADamagedSource) {
  WriteAll(true);
  std::string packed = Gzip(IdxImages(30, 4, 6));
  packed[packed.size() - 6] ^= 1;
  WriteTestFile(data_ + "/train-images-idx3-ubyte.gz", packed);
  const Status status = OpenDataset(data_, options_).status();
  EXPECT_TRUE(Mentions(status, data_ + "/train-images-idx3-ubyte.gz"));
  EXPECT_TRUE(Mentions(status, "incorrect data check")) << status.message();
  EXPECT_EQ(folder_.CountFiles(), 4);
}

TEST_F(IdxFolder, NamesTheSourceOfAnUnpackedFileThatIsNoIdx) {
  WriteAll(true);
  Put("train-images-idx3-ubyte", "hello, this is not an IDX file", true);
  const Status status = OpenDataset(data_, options_).status();
  EXPECT_TRUE(Mentions(status, "not an IDX file of images"));
  EXPECT_TRUE(Mentions(status, data_ + "/train-images-idx3-ubyte.gz"));
  EXPECT_EQ(folder_.CountFiles(), 4);
}

TEST_F(IdxFolder, FindsABadLabelBeforeTraining) {
  WriteAll(false);
  std::string labels = IdxLabels(12);
  labels.back() = 77;
  Put("t10k-labels-idx1-ubyte", labels, false);
  EXPECT_TRUE(Mentions(OpenDataset(data_, options_).status(), "label 77"));
}

TEST_F(IdxFolder, RefusesSplitsOfDifferentImageSize) {
  WriteAll(false);
  Put("t10k-images-idx3-ubyte", IdxImages(12, 6, 4), false);
  EXPECT_TRUE(Mentions(OpenDataset(data_, options_).status(),
                       "must come from the same dataset"));
}

TEST_F(IdxFolder, NamesTheMissingFile) {
  WriteAll(false);
  ASSERT_EQ(std::remove((data_ + "/t10k-labels-idx1-ubyte").c_str()), 0);
  EXPECT_TRUE(Mentions(OpenDataset(data_, options_).status(),
                       "no file t10k-labels-idx1-ubyte or"));
}

TEST_F(IdxFolder, ChecksIndexAndBuffer) {
  WriteAll(false);
  const auto data = OpenDataset(data_, options_);
  ASSERT_TRUE(data.ok());
  std::vector<uint8_t> image(24);
  int32_t label = -1;
  EXPECT_TRUE(Mentions((*data)->Read(Split::kTrain, 30, image, &label),
                       "no example 30: its training split has 30"));
  EXPECT_FALSE((*data)->Read(Split::kTest, -1, image, &label).ok());
  image.resize(23);
  EXPECT_TRUE(Mentions((*data)->Read(Split::kTest, 0, image, &label),
                       "takes 24 bytes, the buffer given has 23"));
}

TEST_F(IdxFolder, ReadsFromManyThreadsWithoutAllocating) {
  WriteAll(false);
  const auto opened = OpenDataset(data_, options_);
  ASSERT_TRUE(opened.ok());
  const Dataset& data = **opened;
  std::atomic<int> ready{0};
  std::atomic<int> wrong{0};
  std::atomic<int64_t> allocated{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      ++ready;
      while (ready < 3) std::this_thread::yield();
      const int64_t before = AllocationCount();
      std::array<uint8_t, 24> image;
      for (int64_t round = 0; round < 3000; ++round) {
        const int64_t index = round % 30;
        int32_t label = -1;
        if (!data.Read(Split::kTrain, index, image, &label).ok() ||
            label != index % 10 || image[1] != (24 * index + 1) % 251) {
          ++wrong;
        }
      }
      allocated += AllocationCount() - before;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(allocated, 0);
}

TEST(OpenDataset, ListsTheNamesForAnUnknownOne) {
  const Status status = OpenDataset("fashion", {}).status();
  EXPECT_EQ(status.code(), StatusCode::kUsage);
  EXPECT_TRUE(
      Mentions(status, "cifar10, fashion-mnist, synthetic, synthetic-cifar"));
  EXPECT_EQ(KnownDatasets().size(), 4u);
  const Status missing = OpenDataset("./no/such/folder", {}).status();
  EXPECT_TRUE(Mentions(missing, "there is no folder ./no/such/folder"));
}

TEST(FashionMnist, SaysHowToGetItsFiles) {
  const TestFolder folder;
  const Status status =
      OpenDataset("fashion-mnist", {folder.path(), folder.path()}).status();
  EXPECT_TRUE(Mentions(status, "apt-get install dataset-fashion-mnist"));
  EXPECT_TRUE(Mentions(status, "DataOptions::data_dir"));
  EXPECT_TRUE(Mentions(status, folder.path()));
}

TEST(FashionMnist, IsLookedForInTheCacheFolderFirst) {
  const TestFolder folder;
  const std::string mine = folder.File("fashion-mnist");
  ASSERT_TRUE(MakeDirs(mine).ok());
  WriteTestFile(mine + "/train-images-idx3-ubyte", IdxImages(3, 2, 2));
  WriteTestFile(mine + "/train-labels-idx1-ubyte", IdxLabels(3));
  WriteTestFile(mine + "/t10k-images-idx3-ubyte", IdxImages(2, 2, 2));
  WriteTestFile(mine + "/t10k-labels-idx1-ubyte", IdxLabels(2));
  const auto data = OpenDataset("fashion-mnist", {"", folder.path()});
  ASSERT_TRUE(data.ok()) << data.status().message();
  EXPECT_EQ((*data)->size(Split::kTrain), 3);
}

TEST(FashionMnist, MatchesItsPublishedStatistics) {
  if (!IsFolder("/usr/share/datasets/fashion-mnist")) {
    GTEST_SKIP() << "package dataset-fashion-mnist is not installed";
  }
  const TestFolder cache;
  const auto data = OpenDataset("fashion-mnist", {"", cache.path()});
  ASSERT_TRUE(data.ok()) << data.status().message();
  EXPECT_EQ((*data)->size(Split::kTrain), 60000);
  EXPECT_EQ((*data)->size(Split::kTest), 10000);
  // 0.2860 and 0.3530 are the figures everybody uses.
  EXPECT_NEAR((*data)->mean()[0] / 255, 0.2860, 5e-5);
  EXPECT_NEAR((*data)->stddev()[0] / 255, 0.3530, 5e-5);
  std::vector<uint8_t> image(784);
  int32_t label = -1;
  ASSERT_TRUE((*data)->Read(Split::kTrain, 0, image, &label).ok());
  EXPECT_EQ(label, 9);
  ASSERT_TRUE((*data)->Read(Split::kTest, 9999, image, &label).ok());
  EXPECT_EQ(label, 5);
}

class Synthetic : public testing::Test {
 protected:
  std::unique_ptr<Dataset> data_ = *OpenDataset("synthetic", {});
  std::vector<uint8_t> image_ = std::vector<uint8_t>(784);
};

TEST_F(Synthetic, IsTheSameEverywhereAndAlways) {
  EXPECT_EQ(data_->size(Split::kTrain), 4096);
  EXPECT_EQ(data_->size(Split::kTest), 1000);
  EXPECT_EQ(data_->spec().bytes(), 784);
  Sha256 sha;
  for (Split split : {Split::kTrain, Split::kTest}) {
    for (int64_t index : {int64_t{0}, int64_t{1}, data_->size(split) - 1}) {
      int32_t label = -1;
      ASSERT_TRUE(data_->Read(split, index, image_, &label).ok());
      sha.Update(std::as_bytes(std::span(image_)));
      sha.Update(std::string(1, static_cast<char>(label)));
    }
  }
  EXPECT_EQ(Hex(sha.Final()),
            "f2d8c3674997e133f49f3714bf9b7235bc58577930db8814d5a322afbed4908b");
}

TEST_F(Synthetic, AllocatesNothing) {
  int32_t label = -1;
  const int64_t before = AllocationCount();
  ASSERT_TRUE(data_->Read(Split::kTrain, 17, image_, &label).ok());
  EXPECT_EQ(AllocationCount() - before, 0);
}

TEST_F(Synthetic, DescribesItsPixels) {
  double sum = 0;
  int32_t label = -1;
  for (int64_t index = 0; index < 1000; ++index) {
    ASSERT_TRUE(data_->Read(Split::kTrain, index, image_, &label).ok());
    for (uint8_t pixel : image_) sum += pixel;
  }
  EXPECT_NEAR(sum / 784000, data_->mean()[0], 2.0);
  EXPECT_GT(data_->stddev()[0], 20);
}

// The simplest of all learners: the nearest class mean.
TEST_F(Synthetic, CanBeLearned) {
  std::vector<std::array<double, 784>> means(10);
  int32_t label = -1;
  for (int64_t index = 0; index < 1000; ++index) {
    ASSERT_TRUE(data_->Read(Split::kTrain, index, image_, &label).ok());
    auto& mean = means[static_cast<size_t>(label)];
    for (size_t i = 0; i < 784; ++i) mean[i] += image_[i] / 100.0;
  }
  int right = 0;
  for (int64_t index = 0; index < 1000; ++index) {
    ASSERT_TRUE(data_->Read(Split::kTest, index, image_, &label).ok());
    size_t best = 0;
    double best_distance = 1e300;
    for (size_t c = 0; c < 10; ++c) {
      double distance = 0;
      for (size_t i = 0; i < 784; ++i) {
        distance += (image_[i] - means[c][i]) * (image_[i] - means[c][i]);
      }
      if (distance < best_distance) {
        best = c;
        best_distance = distance;
      }
    }
    right += static_cast<int32_t>(best) == label;
  }
  EXPECT_GT(right, 900);
}

TEST(SyntheticCifar, HasTheShapeOfCifarAndItsOwnGridInEachChannel) {
  const std::unique_ptr<Dataset> data = *OpenDataset("synthetic-cifar", {});
  EXPECT_EQ(data->spec().channels, 3);
  EXPECT_EQ(data->spec().height, 32);
  EXPECT_EQ(data->spec().width, 32);
  EXPECT_EQ(data->spec().classes, 10);
  ASSERT_EQ(data->mean().size(), 3u);
  ASSERT_EQ(data->stddev().size(), 3u);
  EXPECT_NE(data->mean()[0], data->mean()[1]);
  constexpr size_t kPlane = 32 * 32;
  std::vector<uint8_t> image(3 * kPlane);
  std::array<double, 3> sums{};
  int32_t label = -1;
  for (int64_t index = 0; index < 1000; ++index) {
    ASSERT_TRUE(data->Read(Split::kTrain, index, image, &label).ok());
    EXPECT_EQ(label, index % 10);
    for (size_t i = 0; i < image.size(); ++i) sums[i / kPlane] += image[i];
  }
  for (size_t c = 0; c < 3; ++c) {
    EXPECT_NEAR(sums[c] / (1000.0 * kPlane), data->mean()[c], 2.0);
    EXPECT_GT(data->stddev()[c], 20);
  }
  const std::span<uint8_t> pixels(image);
  EXPECT_FALSE(
      std::ranges::equal(pixels.first(kPlane), pixels.subspan(kPlane, kPlane)));
}

}  // namespace
}  // namespace thimble
