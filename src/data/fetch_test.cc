// SPDX-License-Identifier: Apache-2.0
//
// FetchDataset from files; downloads are tested in
// tests/cli/download_cli_test.cc.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/test_sha256.h"
#include "data/cifar10.h"
#include "data/sums.h"
#include "data/test_files.h"
#include "thimble/data.h"

namespace thimble {
namespace {

class Fetch : public testing::Test {
 protected:
  Fetch() {
    options_.places.cache_dir = folder_.File("cache");
    options_.sums = folder_.File("sums");
    std::string sums = "# a comment\n";
    for (size_t file = 0; file < kCifar10Files; ++file) {
      files_[file] = Cifar10Records(2, static_cast<uint32_t>(10 * file));
      sums += Sha256Hex(files_[file]) +
              (file % 2 == 0 ? "  some/where/" : " *") +
              std::string(kCifar10Names[file]) + "\n";
    }
    WriteTestFile(options_.sums, sums);
  }

  std::string MakeArchive() const {
    std::string tar = TarMember("cifar-10-batches-bin/", "", '5') +
                      TarMember("cifar-10-batches-bin/readme.html", "hello");
    for (size_t file = 0; file < kCifar10Files; ++file) {
      tar +=
          TarMember("cifar-10-batches-bin/" + std::string(kCifar10Names[file]),
                    files_[file]);
    }
    return tar + TarEnd();
  }

  void WriteFolder(const std::string& folder) const {
    ASSERT_TRUE(MakeDirs(folder).ok());
    for (size_t file = 0; file < kCifar10Files; ++file) {
      WriteTestFile(folder + "/" + std::string(kCifar10Names[file]),
                    files_[file]);
    }
  }

  Result<std::string> Get(const std::string& from) {
    options_.from = from;
    return FetchDataset("cifar10", options_);
  }

  void ExpectComplete(const std::string& folder) const {
    for (size_t file = 0; file < kCifar10Files; ++file) {
      EXPECT_TRUE(
          ReadTestFile(folder + "/" + std::string(kCifar10Names[file])) ==
          files_[file]);
    }
    EXPECT_TRUE(OpenDataset(folder, {}).ok());
  }

  // Expects that nothing came, and an error that says all of `texts`.
  void ExpectRefused(const std::string& from,
                     const std::vector<std::string>& texts) {
    const int before = folder_.CountFiles();
    const Status status = Get(from).status();
    EXPECT_EQ(status.code(), StatusCode::kFailed);
    for (const std::string& text : texts) {
      EXPECT_NE(status.message().find(text), std::string::npos)
          << "said: " << status.message() << "\nand not: " << text;
    }
    EXPECT_EQ(folder_.CountFiles(), before);
  }

  TestFolder folder_;
  FetchOptions options_;
  std::array<std::string, kCifar10Files> files_;
  const std::string target_ = folder_.File("cache/cifar10");
  const std::string archive_ = folder_.File("a.tar.gz");
};

TEST_F(Fetch, UnpacksAnArchiveIntoTheCache) {
  WriteTestFile(archive_, Gzip(MakeArchive()));
  uint64_t last = 0;
  options_.progress = [&](const FetchProgress& progress) {
    EXPECT_STREQ(progress.doing, "unpacking");
    EXPECT_EQ(progress.total, Gzip(MakeArchive()).size());
    last = progress.bytes;
  };
  const auto folder = Get(archive_);
  ASSERT_TRUE(folder.ok()) << folder.status().message();
  EXPECT_EQ(*folder, target_);
  EXPECT_EQ(last, Gzip(MakeArchive()).size());
  ExpectComplete(target_);
  // The six, the archive and the sums: no readme and no temporary file.
  EXPECT_EQ(folder_.CountFiles(), 8);
}

TEST_F(Fetch, CopiesAFolderToTheGivenPlace) {
  WriteFolder(folder_.File("mine/cifar-10-batches-bin"));
  options_.places.data_dir = folder_.File("deep/down");
  const auto folder = Get(folder_.File("mine"));
  ASSERT_TRUE(folder.ok()) << folder.status().message();
  EXPECT_EQ(*folder, folder_.File("deep/down"));
  ExpectComplete(*folder);
}

TEST_F(Fetch, LeavesRightFilesAlone) {
  WriteFolder(target_);
  struct stat before;
  ASSERT_EQ(stat((target_ + "/data_batch_1.bin").c_str(), &before), 0);
  // Nothing is there to get it from, and nothing is needed.
  const auto folder = Get(folder_.File("absent"));
  ASSERT_TRUE(folder.ok()) << folder.status().message();
  EXPECT_EQ(*folder, target_);
  struct stat after;
  ASSERT_EQ(stat((target_ + "/data_batch_1.bin").c_str(), &after), 0);
  EXPECT_EQ(before.st_ino, after.st_ino);
}

TEST_F(Fetch, ReplacesDamagedFiles) {
  WriteFolder(target_);
  WriteTestFile(target_ + "/data_batch_4.bin", Cifar10Records(2, 1));
  WriteTestFile(archive_, Gzip(MakeArchive()));
  ASSERT_TRUE(Get(archive_).ok());
  ExpectComplete(target_);
}

TEST_F(Fetch, NamesADamagedFileAndKeepsTheOldOnes) {
  WriteFolder(target_);
  WriteTestFile(target_ + "/test_batch.bin", "old");
  files_[3][5000] ^= 1;
  WriteTestFile(archive_, Gzip(MakeArchive()));
  ExpectRefused(archive_, {"data_batch_4.bin of " + archive_, "SHA-256"});
  const std::string mine = folder_.File("mine");
  WriteFolder(mine);
  ExpectRefused(mine, {"data_batch_4.bin of " + mine, "SHA-256"});
  EXPECT_EQ(ReadTestFile(target_ + "/test_batch.bin"), "old");
}

TEST_F(Fetch, NamesAMissingOrRepeatedFile) {
  const std::string tar = MakeArchive();
  WriteTestFile(archive_,
                Gzip(tar.substr(0, tar.rfind("cifar-10-batches-bin/test"))));
  ExpectRefused(archive_, {archive_, "holds no test_batch.bin"});
  WriteTestFile(archive_, Gzip(TarMember("x/test_batch.bin", files_[5]) + tar));
  ExpectRefused(archive_, {archive_, "holds test_batch.bin twice"});
  WriteFolder(folder_.File("mine"));
  ASSERT_EQ(std::remove(folder_.File("mine/data_batch_2.bin").c_str()), 0);
  ExpectRefused(folder_.File("mine"), {folder_.File("mine/data_batch_2.bin")});
}

TEST_F(Fetch, RefusesWhatIsNoArchive) {
  WriteTestFile(archive_, "plain text");
  ExpectRefused(archive_, {archive_, "no gzip file"});
  WriteTestFile(archive_, Gzip(std::string(600, 'x')));
  ExpectRefused(archive_, {archive_, "no tar archive"});
  const std::string packed = Gzip(MakeArchive());
  WriteTestFile(archive_, packed.substr(0, packed.size() - 1));
  ExpectRefused(archive_, {archive_, "cut short"});
  ExpectRefused(folder_.File("absent"), {folder_.File("absent")});
}

// Names in an archive are from anybody: only their last part is looked at, and
// nothing is written outside of the target.
TEST_F(Fetch, WritesNothingOutsideItsFolder) {
  std::string tar = TarMember("../../outside", "x") +
                    TarMember("/tmp/thimble-outside", "x") +
                    TarMember("data_batch_1.bin", "", '2');
  for (size_t file = 0; file < kCifar10Files; ++file) {
    tar +=
        TarMember("../../../" + std::string(kCifar10Names[file]), files_[file]);
  }
  WriteTestFile(archive_, Gzip(tar + TarEnd()));
  ASSERT_TRUE(Get(archive_).ok());
  ExpectComplete(target_);
  EXPECT_EQ(folder_.CountFiles(), 8);
}

TEST_F(Fetch, RefusesAListWithoutAllSums) {
  WriteTestFile(options_.sums, std::string(64, 'a') + "  data_batch_1.bin\n" +
                                   std::string(63, 'a') +
                                   "  data_batch_2.bin\n");
  ExpectRefused(archive_,
                {options_.sums, "no SHA-256 sum of data_batch_2.bin"});
}

TEST_F(Fetch, RefusesOtherNamesAndAddresses) {
  for (const auto& [name, says] :
       {std::pair("fashion-mnist", "dataset-fashion-mnist"),
        std::pair("synthetic", "no files"),
        std::pair("imagenet", "unknown dataset 'imagenet'")}) {
    const Status status = FetchDataset(name, options_).status();
    EXPECT_EQ(status.code(), StatusCode::kUsage);
    EXPECT_NE(status.message().find(says), std::string::npos)
        << status.message();
  }
  const Status status = Get("ftp://host/a.tar.gz").status();
  EXPECT_EQ(status.code(), StatusCode::kUsage);
  EXPECT_NE(status.message().find("http://"), std::string::npos);
}

TEST_F(Fetch, SurvivesDamagedArchives) {
  const std::string packed = Gzip(MakeArchive());
  for (uint64_t round = 0; round < 300; ++round) {
    WriteTestFile(archive_, Mutate(packed, round, packed.size()));
    if (Get(archive_).ok()) {
      ExpectComplete(target_);
      for (const std::string_view name : kCifar10Names) {
        ASSERT_EQ(std::remove((target_ + "/" + std::string(name)).c_str()), 0);
      }
    }
    ASSERT_EQ(folder_.CountFiles(), 2) << round;
  }
}

TEST(Cifar10Sums, ArePublishedOnes) {
  const Cifar10Sums sums = PublishedCifar10Sums();
  for (const std::string& sum : sums.files) EXPECT_EQ(sum.size(), 64u);
  EXPECT_EQ(sums.archive.size(), 64u);
}

}  // namespace
}  // namespace thimble
