// SPDX-License-Identifier: Apache-2.0
//
// Which changes of a data set its fingerprint tells, and which are none.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <set>
#include <string>
#include <utility>

#include "base/files.h"
#include "data/cifar10.h"
#include "data/test_files.h"
#include "thimble/data.h"

namespace thimble {
namespace {

std::string FingerprintOf(const Dataset& data) {
  const auto fingerprint = data.Fingerprint();
  EXPECT_TRUE(fingerprint.ok()) << fingerprint.status().message();
  return fingerprint.ok() ? *fingerprint : "";
}

// The bytes of the four files. There are more images than are looked at.
struct IdxBytes {
  std::string train_images = IdxImages(3000, 3, 5);
  std::string train_labels = IdxLabels(3000);
  std::string test_images = IdxImages(40, 3, 5);
  std::string test_labels = IdxLabels(40, 7);
};
constexpr size_t kImageBytes = 15;

class IdxFingerprint : public testing::Test {
 protected:
  std::string Of(const IdxBytes& bytes, bool packed = false) {
    const TestFolder folder;
    const std::string end = packed ? ".gz" : "";
    for (const auto& [name, contents] :
         {std::pair("train-images-idx3-ubyte", &bytes.train_images),
          std::pair("train-labels-idx1-ubyte", &bytes.train_labels),
          std::pair("t10k-images-idx3-ubyte", &bytes.test_images),
          std::pair("t10k-labels-idx1-ubyte", &bytes.test_labels)}) {
      WriteTestFile(folder.File(name + end),
                    packed ? Gzip(*contents) : *contents);
    }
    const auto data = OpenDataset(folder.path(), {"", folder.File("cache")});
    EXPECT_TRUE(data.ok()) << data.status().message();
    return data.ok() ? FingerprintOf(**data) : "";
  }

  const std::string original_ = Of({});
};

TEST_F(IdxFingerprint, IsTheSameAtAnotherPathAndForPackedFiles) {
  EXPECT_EQ(original_.size(), 16u);
  EXPECT_EQ(original_.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_EQ(Of({}), original_);
  EXPECT_EQ(Of({}, /*packed=*/true), original_);
}

TEST_F(IdxFingerprint, TellsEveryChangedLabel) {
  std::set<std::string> seen = {original_};
  for (const size_t record : {0, 1, 2, 1777, 2998, 2999}) {
    IdxBytes bytes;
    char& label = bytes.train_labels[8 + record];
    label = static_cast<char>((label + 1) % 10);
    EXPECT_TRUE(seen.insert(Of(bytes)).second) << record;
  }
  for (const size_t record : {0, 1, 39}) {
    IdxBytes bytes;
    char& label = bytes.test_labels[8 + record];
    label = static_cast<char>((label + 1) % 10);
    EXPECT_TRUE(seen.insert(Of(bytes)).second) << record;
  }
}

TEST_F(IdxFingerprint, TellsOtherImagesOfTheSameNumber) {
  IdxBytes train;
  for (size_t i = 16; i < train.train_images.size(); ++i) {
    train.train_images[i] ^= 1;
  }
  EXPECT_NE(Of(train), original_);
  IdxBytes test;
  for (size_t i = 16; i < test.test_images.size(); ++i) {
    test.test_images[i] ^= 1;
  }
  EXPECT_NE(Of(test), original_);
}

// Labels of the records that change places are alike, and so is the sum of all
// pixels: the images alone tell.
TEST_F(IdxFingerprint, TellsAnotherOrderOfImages) {
  IdxBytes bytes;
  const std::string images = bytes.train_images.substr(16);
  bytes.train_images.resize(16);
  for (size_t record = 0; record < 3000; ++record) {
    const size_t from = (record + 10) % 3000;
    bytes.train_images += images.substr(from * kImageBytes, kImageBytes);
  }
  EXPECT_NE(Of(bytes), original_);
}

TEST_F(IdxFingerprint, TellsAnotherOrderOfRecordsThatAreNotLookedAt) {
  IdxBytes bytes;
  std::swap(bytes.train_labels[8 + 1], bytes.train_labels[8 + 2]);
  for (size_t i = 0; i < kImageBytes; ++i) {
    std::swap(bytes.train_images[16 + kImageBytes + i],
              bytes.train_images[16 + 2 * kImageBytes + i]);
  }
  EXPECT_NE(Of(bytes), original_);
}

TEST_F(IdxFingerprint, TellsAnotherShapeOfTheSameBytes) {
  IdxBytes bytes;
  for (std::string* images : {&bytes.train_images, &bytes.test_images}) {
    std::swap((*images)[11], (*images)[15]);
  }
  EXPECT_NE(Of(bytes), original_);
}

TEST(Cifar10Fingerprint, TellsAFileReplacedAndALabelChanged) {
  const TestFolder folder;
  const auto write = [&](size_t file, const std::string& bytes) {
    WriteTestFile(folder.File(kCifar10Names[file]), bytes);
  };
  const auto fingerprint = [&] {
    const auto data = OpenDataset(folder.path(), {});
    EXPECT_TRUE(data.ok()) << data.status().message();
    return data.ok() ? FingerprintOf(**data) : "";
  };
  for (size_t file = 0; file < kCifar10Files; ++file) {
    write(file, Cifar10Records(100, static_cast<uint32_t>(100 * file)));
  }
  const std::string original = fingerprint();
  std::set<std::string> seen = {original};
  for (size_t file = 0; file < kCifar10Files; ++file) {
    const auto first = static_cast<uint32_t>(100 * file);
    // The same labels, other pixels.
    write(file, Cifar10Records(100, first + 1000));
    EXPECT_TRUE(seen.insert(fingerprint()).second) << file;
    std::string one = Cifar10Records(100, first);
    one[37 * kCifar10RecordBytes] = static_cast<char>((37 + first + 1) % 10);
    write(file, one);
    EXPECT_TRUE(seen.insert(fingerprint()).second) << file;
    write(file, Cifar10Records(100, first));
  }
  EXPECT_EQ(fingerprint(), original);
}

TEST(HoldOutFingerprint, CoversTheViewAndNotTheRealTestSplit) {
  const TestFolder folder;
  const auto open = [&](int64_t held_out, uint32_t test_first) {
    WriteTestFile(folder.File("train-images-idx3-ubyte"), IdxImages(90, 3, 5));
    WriteTestFile(folder.File("train-labels-idx1-ubyte"), IdxLabels(90));
    WriteTestFile(folder.File("t10k-images-idx3-ubyte"), IdxImages(20, 3, 5));
    WriteTestFile(folder.File("t10k-labels-idx1-ubyte"),
                  IdxLabels(20, test_first));
    auto data = OpenDataset(folder.path(), {});
    EXPECT_TRUE(data.ok()) << data.status().message();
    if (held_out == 0) return FingerprintOf(**data);
    auto view = HoldOut(*std::move(data), held_out);
    EXPECT_TRUE(view.ok()) << view.status().message();
    return FingerprintOf(**view);
  };
  const std::string view = open(20, 0);
  EXPECT_EQ(open(20, 0), view);
  EXPECT_EQ(open(20, 3), view);
  EXPECT_NE(open(21, 0), view);
  EXPECT_NE(open(0, 0), view);
  EXPECT_NE(open(0, 3), open(0, 0));
}

// Written down: a run on computed images goes on with another version of this
// library only while that computes the same ones.
TEST(SyntheticFingerprint, IsThatOfItsImages) {
  const auto grey = OpenDataset("synthetic", {});
  const auto colour = OpenDataset("synthetic-cifar", {});
  ASSERT_TRUE(grey.ok() && colour.ok());
  EXPECT_EQ(FingerprintOf(**grey), "7d44195437bdfb73");
  EXPECT_EQ(FingerprintOf(**colour), "104639633b1f386a");
}

// A set of one record whose files were cut since.
TEST(Fingerprint, ReportsARecordThatCannotBeRead) {
  const TestFolder folder;
  WriteTestFile(folder.File("train-images-idx3-ubyte"), IdxImages(1, 3, 5));
  WriteTestFile(folder.File("train-labels-idx1-ubyte"), IdxLabels(1));
  WriteTestFile(folder.File("t10k-images-idx3-ubyte"), IdxImages(1, 3, 5));
  WriteTestFile(folder.File("t10k-labels-idx1-ubyte"), IdxLabels(1));
  const auto data = OpenDataset(folder.path(), {});
  ASSERT_TRUE(data.ok());
  EXPECT_TRUE((*data)->Fingerprint().ok());
  ASSERT_EQ(truncate(folder.File("t10k-images-idx3-ubyte").c_str(), 20), 0);
  EXPECT_NE((*data)->Fingerprint().status().message().find("cut short"),
            std::string::npos);
}

}  // namespace
}  // namespace thimble
