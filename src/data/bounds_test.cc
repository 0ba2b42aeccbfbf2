// SPDX-License-Identifier: Apache-2.0
//
// What unpacking and fetching may write at most, and that they leave nothing
// behind where they are refused.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/test_sha256.h"
#include "data/cifar10.h"
#include "data/test_files.h"
#include "thimble/data.h"

namespace thimble {
namespace {

constexpr size_t kMegabyte = size_t{1} << 20;

// Leaves what a killed writer of `path` leaves.
void LeaveATemporary(const std::string& path) {
  const pid_t pid = fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    auto writer = AtomicFileWriter::Create(path);
    // No destructor runs.
    _exit(writer.ok() ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  ASSERT_EQ(status, 0);
}

class Bounds : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(MakeDirs(data_).ok()); }

  // Four packed files; the training images unpack to `images`.
  void WriteIdx(const std::string& images) {
    WriteTestFile(data_ + "/train-images-idx3-ubyte.gz", Gzip(images));
    WriteTestFile(data_ + "/train-labels-idx1-ubyte.gz", Gzip(IdxLabels(30)));
    WriteTestFile(data_ + "/t10k-images-idx3-ubyte.gz",
                  Gzip(IdxImages(12, 4, 6)));
    WriteTestFile(data_ + "/t10k-labels-idx1-ubyte.gz", Gzip(IdxLabels(12)));
  }

  // An archive of the six files, and their sums.
  void WriteCifar10() {
    std::string tar;
    std::string sums;
    for (const std::string_view name : kCifar10Names) {
      tar += TarMember(name, Cifar10Records(40));
      sums += Sha256Hex(Cifar10Records(40)) + "  " + std::string(name) + "\n";
    }
    WriteTestFile(archive_, Gzip(tar + TarEnd()));
    WriteTestFile(sums_, sums);
  }

  Status Open() { return OpenDataset(data_, {"", cache_}).status(); }

  Status Get(const std::string& sums) {
    FetchOptions options;
    options.from = archive_;
    options.sums = sums;
    options.places.cache_dir = cache_;
    return FetchDataset("cifar10", options).status();
  }

  // Expects an error that says all of `texts`, and `files` files below folder_.
  void ExpectRefused(const Status& status,
                     const std::vector<std::string>& texts, int files) {
    EXPECT_EQ(status.code(), StatusCode::kFailed);
    for (const std::string& text : texts) {
      EXPECT_NE(status.message().find(text), std::string::npos)
          << "said: " << status.message() << "\nand not: " << text;
    }
    EXPECT_EQ(folder_.CountFiles(), files);
  }

  TestFolder folder_;
  const std::string data_ = folder_.File("data");
  const std::string cache_ = folder_.File("cache");
  const std::string archive_ = folder_.File("a.tar.gz");
  const std::string sums_ = folder_.File("sums");
  const std::string packed_ = data_ + "/train-images-idx3-ubyte.gz";
};

// The limit shows that the bytes were never written.
TEST_F(Bounds, EndUnpackingAtTheFirstByteThatTheHeaderDoesNotPromise) {
  WriteIdx(IdxImages(30, 4, 6) + std::string(8 * kMegabyte, '\0'));
  {
    const FileSizeLimit limit(kMegabyte);
    ExpectRefused(Open(), {packed_, "promises 736 bytes", "too long"}, 4);
  }
  WriteIdx(IdxImages(30, 4, 6) + "x");
  ExpectRefused(Open(), {packed_, "promises 736 bytes", "too long"}, 4);
}

TEST_F(Bounds, EndUnpackingAtABadHeader) {
  const std::string zeros(8 * kMegabyte, '\0');
  WriteIdx(IdxLabels(30) + zeros);
  const FileSizeLimit limit(kMegabyte);
  ExpectRefused(Open(), {packed_, "it starts with 0x00000801"}, 4);
  WriteIdx(zeros);
  ExpectRefused(Open(), {packed_, "it starts with 0x00000000"}, 4);
}

TEST_F(Bounds, NameASourceThatEndsTooEarly) {
  WriteIdx(IdxImages(30, 4, 6).substr(0, 735));
  ExpectRefused(Open(), {packed_, "promises 736 bytes", "735", "cut short"}, 4);
  WriteIdx(IdxImages(30, 4, 6).substr(0, 15));
  ExpectRefused(Open(), {packed_, "it has 15 bytes"}, 4);
}

TEST_F(Bounds, RefuseWhatTheFileSystemHasNoRoomFor) {
  std::string images;
  for (const uint32_t word : {0x803u, 0xffffffffu, 4096u, 4096u}) {
    AppendBigEndian(word, &images);
  }
  WriteIdx(images);
  ExpectRefused(Open(), {packed_, "has room for", cache_}, 4);
}

TEST_F(Bounds, RemoveWhatDeadProcessesHaveLeftInTheCache) {
  WriteIdx(IdxImages(30, 4, 6));
  ASSERT_TRUE(Open().ok());
  EXPECT_EQ(folder_.CountFiles(), 8);
  const std::string command =
      "find '" + cache_ + "' -name train-images-idx3-ubyte";
  std::FILE* pipe = popen(command.c_str(), "r");
  std::array<char, 4096> line{};
  ASSERT_NE(std::fgets(line.data(), line.size(), pipe), nullptr);
  pclose(pipe);
  std::string cached = line.data();
  cached.pop_back();
  LeaveATemporary(cached);
  EXPECT_EQ(folder_.CountFiles(), 9);
  ASSERT_EQ(std::remove(cached.c_str()), 0);
  ASSERT_TRUE(Open().ok());
  EXPECT_EQ(folder_.CountFiles(), 8);
}

TEST_F(Bounds, RemoveWhatDeadProcessesHaveLeftOfAFetch) {
  WriteCifar10();
  ASSERT_TRUE(MakeDirs(cache_ + "/cifar10").ok());
  for (const std::string_view name : kCifar10Names) {
    LeaveATemporary(cache_ + "/cifar10/" + std::string(name));
  }
  EXPECT_EQ(folder_.CountFiles(), 8);
  const Status status = Get(sums_);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(folder_.CountFiles(), 8);
}

TEST_F(Bounds, RefuseAPublishedNameOfAnotherSizeAtItsHeader) {
  // 30,730,001 bytes, of which none follow.
  const std::string header = WithTarChecksum(
      TarMember("data_batch_1.bin", "").replace(124, 11, "00165163421"));
  WriteTestFile(archive_, Gzip(header));
  ExpectRefused(
      Get(""), {archive_, "data_batch_1.bin", "30730001 bytes", "30730000"}, 1);
}

TEST_F(Bounds, ReportTheLimitOnAFilesSize) {
  WriteIdx(IdxImages(30, 64, 64));
  WriteCifar10();
  ASSERT_TRUE(MakeDirs(cache_).ok());
  const FileSizeLimit limit(65536);
  ExpectRefused(Open(), {"train-images-idx3-ubyte", "File too large"}, 6);
  ExpectRefused(Get(sums_), {"data_batch_1.bin", "File too large"}, 6);
}

}  // namespace
}  // namespace thimble
