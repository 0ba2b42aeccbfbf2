// SPDX-License-Identifier: Apache-2.0
//
// Places that cannot be looked at are not taken for empty ones.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/files.h"
#include "data/test_files.h"
#include "thimble/data.h"

namespace thimble {
namespace {

void ExpectSays(const std::string& said, const std::string& text) {
  EXPECT_NE(said.find(text), std::string::npos)
      << "said: " << said << "\nand not: " << text;
}

class Unreadable : public testing::Test {
 protected:
  // Paths that nobody can look at, not even the superuser, and the system's
  // reason.
  std::vector<std::pair<std::string, std::string>> Cases() {
    const std::string loop = folder_.File("loop");
    EXPECT_EQ(symlink(loop.c_str(), loop.c_str()), 0);
    WriteTestFile(folder_.File("file"), "x");
    return {{loop, "Too many levels of symbolic links"},
            {folder_.File("file/below"), "Not a directory"},
            {folder_.File(std::string(300, 'x')), "File name too long"}};
  }

  TestFolder folder_;
};

TEST_F(Unreadable, IsSaidOfAFolder) {
  for (const auto& [path, reason] : Cases()) {
    const Status status = OpenDataset(path, {}).status();
    EXPECT_EQ(status.code(), StatusCode::kFailed);
    ExpectSays(status.message(), path);
    ExpectSays(status.message(), reason);
  }
}

TEST_F(Unreadable, IsSaidOfThePlacesOfANamedSet) {
  for (const auto& [path, reason] : Cases()) {
    for (const char* name : {"cifar10", "fashion-mnist"}) {
      for (const DataOptions& options :
           {DataOptions{path, ""}, DataOptions{"", path}}) {
        ExpectSays(OpenDataset(name, options).status().message(), reason);
        ExpectSays(LocateDataset(name, options).status().message(), reason);
      }
    }
  }
}

TEST_F(Unreadable, IsSaidOfASingleFile) {
  for (const std::string name :
       {"data_batch_1.bin", "train-images-idx3-ubyte"}) {
    const std::string path = folder_.File(name);
    ASSERT_EQ(symlink(path.c_str(), path.c_str()), 0);
    const std::string said = OpenDataset(folder_.path(), {}).status().message();
    ExpectSays(said, "Too many levels of symbolic links");
    ExpectSays(said, path);
    ASSERT_EQ(unlink(path.c_str()), 0);
  }
}

TEST_F(Unreadable, IsSaidOfASourceAndATargetOfAFetch) {
  for (const auto& [path, reason] : Cases()) {
    FetchOptions options;
    options.from = path;
    options.places.data_dir = folder_.File("target");
    ExpectSays(FetchDataset("cifar10", options).status().message(), reason);
    options.from = folder_.path();
    options.places.data_dir = path;
    ExpectSays(FetchDataset("cifar10", options).status().message(), reason);
  }
}

TEST_F(Unreadable, IsNotSaidWhereSimplyNothingIs) {
  const std::string absent = folder_.File("absent");
  ExpectSays(OpenDataset(absent, {}).status().message(),
             "there is no folder " + absent);
  for (const char* name : {"cifar10", "fashion-mnist"}) {
    const auto located = LocateDataset(name, {absent, absent});
    ASSERT_TRUE(located.ok()) << located.status().message();
    EXPECT_EQ(*located, "");
  }
  WriteTestFile(folder_.File("file"), "x");
  ExpectSays(OpenDataset(folder_.File("file"), {}).status().message(),
             folder_.File("file") + " is not a folder");
}

// What `ask` says in a process without the superuser's rights; empty where it
// cannot give them up.
std::string AskUnprivileged(const std::function<std::string()>& ask) {
  std::array<int, 2> ends;
  EXPECT_EQ(pipe(ends.data()), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    constexpr uid_t kNobody = 65534;
    std::string said;
    if (geteuid() != 0 || setuid(kNobody) == 0) said = ask();
    const ssize_t put = write(ends[1], said.data(), said.size());
    _exit(put == static_cast<ssize_t>(said.size()) ? 0 : 1);
  }
  close(ends[1]);
  std::string said;
  std::array<char, 512> piece;
  for (ssize_t got; (got = read(ends[0], piece.data(), piece.size())) > 0;) {
    said.append(piece.data(), static_cast<size_t>(got));
  }
  close(ends[0]);
  EXPECT_EQ(waitpid(pid, nullptr, 0), pid);
  return said;
}

TEST_F(Unreadable, IsSaidOfAFolderWithoutPermission) {
  const std::string locked = folder_.File("locked");
  ASSERT_TRUE(MakeDirs(locked + "/inner").ok());
  ASSERT_EQ(chmod(folder_.path().c_str(), 0755), 0);
  ASSERT_EQ(chmod(locked.c_str(), 0), 0);
  for (const std::string& path : {locked, locked + "/inner"}) {
    const std::string said = AskUnprivileged(
        [&] { return OpenDataset(path, {}).status().message(); });
    const std::string located = AskUnprivileged([&] {
      return LocateDataset("cifar10", {path, ""}).status().message();
    });
    if (said.empty()) GTEST_SKIP() << "cannot give up the superuser's rights";
    ExpectSays(said, path);
    ExpectSays(said, "Permission denied");
    ExpectSays(located, "Permission denied");
  }
  ASSERT_EQ(chmod(locked.c_str(), 0700), 0);
}

}  // namespace
}  // namespace thimble
