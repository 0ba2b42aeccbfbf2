// SPDX-License-Identifier: Apache-2.0
//
// For tests only: a fresh folder under testing::TempDir() that is removed with
// everything in it, and whole files in one call. One thread.
#pragma once

#include <fcntl.h>
#include <ftw.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

namespace thimble {

class TestFolder {
 public:
  TestFolder() : path_(testing::TempDir() + "thimble-XXXXXX") {
    EXPECT_NE(mkdtemp(path_.data()), nullptr) << path_;
  }
  ~TestFolder() {
    nftw(
        path_.c_str(),
        [](const char* path, const struct stat*, int, struct FTW*) {
          return std::remove(path);
        },
        16, FTW_DEPTH | FTW_PHYS);
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string File(std::string_view name) const {
    return path_ + "/" + std::string(name);
  }

  // Regular files anywhere below, temporary ones included.
  int CountFiles() const {
    static int count;
    count = 0;
    nftw(
        path_.c_str(),
        [](const char*, const struct stat* info, int, struct FTW*) {
          count += S_ISREG(info->st_mode);
          return 0;
        },
        16, FTW_PHYS);
    return count;
  }

 private:
  std::string path_;
};

inline void WriteTestFile(const std::string& path, std::string_view bytes) {
  // A new file, not the old one emptied: ext4 flushes that to the disk at once,
  // and some tests write thousands of files.
  std::remove(path.c_str());
  std::FILE* file = std::fopen(path.c_str(), "wb");
  ASSERT_NE(file, nullptr) << path;
  EXPECT_EQ(std::fwrite(bytes.data(), 1, bytes.size(), file), bytes.size());
  std::fclose(file);
}

inline std::string ReadTestFile(const std::string& path) {
  std::string bytes;
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) {
    ADD_FAILURE() << "no file " << path;
    return bytes;
  }
  char piece[4096];
  while (const size_t got = std::fread(piece, 1, sizeof(piece), file)) {
    bytes.append(piece, got);
  }
  std::fclose(file);
  return bytes;
}

}  // namespace thimble
